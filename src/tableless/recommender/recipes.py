"""How a computed embedding is trained: as the paper does, or by way of a table.

Trained from nothing, a network that computes embeddings learns slowly, because every id's gradient passes through
weights that all ids share. A table has no such trouble. So the fast recipe trains a table first (the teacher), fits the
network to it by regression, which is quick, and then trains the network on the data for a few epochs more, where the
targets are what the table expects of each pair. The table is thrown away. Where a table would not fit in memory, the
network is trained from nothing.

A table under an MLP overfits sparse data long before it has learned it, and learns far more from a GMF's expectations
than from the actions themselves (docs/decisions.md). So the teacher of an MLP has a teacher of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ..embedding.distillation import distil
from ..embedding.tables import FullEmbedding
from .distributed import Processes
from .evaluation import scheme_inputs
from .models import GMF, MLP, Recommender
from .splits import Split
from .training import EpochReport, Journal, TrainConfig, train

LARGEST_TEACHER = 100_000_000
"""Parameters of the largest table that is worth training: 1.2 GB with its optimizer's moments."""

FINE_TUNING_EPOCHS = 10

TEACHER_DECAY = 0.2
"""Weight decay of the table to learn from: without it, the table overfits rare ids and the network learns that, too."""

# The table's scores are a sum over directions with weights σ, and an error counts in them by σ to the power ½. But the
# first direction is the popularity that everyone shares, and would take all attention: half that power did best
# without batch norm, on the validation data of MovieLens-1M (docs/decisions.md; with batch norm ⅛ was just ahead).
_POWER = 0.25

OnBatch = Callable[[int, int, int, float], None]
OnEpoch = Callable[[EpochReport], None]


def train_fast(
    model: Recommender,
    split: Split,
    config: TrainConfig,
    *,
    teacher: Recommender | None = None,
    journal: Journal | None = None,
    processes: Processes = Processes(),  # noqa: B008 - frozen
    on_note: Callable[[str], None] | None = None,
    on_batch: OnBatch | None = None,
    on_epoch: OnEpoch | None = None,
) -> list[EpochReport]:
    """Train a model of computed embeddings by way of a table; returns the epochs of the last stage.

    `teacher` is a trained model of full tables, where there is one already (see `untrained_teachers`).
    """
    note = on_note or (lambda text: None)
    table_size = (split.num_known_users + split.num_known_items) * model.users.embedding_dim
    if table_size > LARGEST_TEACHER:
        note(f"a table of {table_size:,} parameters is too large to learn from: the network is trained from nothing")
        return train(model, split, config, journal=journal, processes=processes, on_batch=on_batch, on_epoch=on_epoch)
    start = journal.start() if journal else None
    if start is None:
        if teacher is None:
            for table in untrained_teachers(model, split):
                note(f"training a full table to learn from ({type(table).__name__})")
                own = teacher_training(config, table)
                train(table, split, own, teacher=teacher, processes=processes, on_batch=on_batch, on_epoch=on_epoch)
                teacher = table
        assert teacher is not None
        note("fitting the network to the table")
        fit_to_teacher(model, teacher, split, seed=config.seed, on_note=note)
        if journal:
            journal.keep_start(_pair(model, teacher).state_dict())
    else:
        teacher = untrained_teachers(model, split)[-1]
        _pair(model, teacher).load_state_dict(start)
    note("training the network on the data")
    return train(
        model,
        split,
        fine_tuning(config, split),
        teacher=teacher,
        may_keep_start=True,
        journal=journal,
        processes=processes,
        on_batch=on_batch,
        on_epoch=on_epoch,
    )


def teacher_training(config: TrainConfig, teacher: Recommender) -> TrainConfig:
    """How a table to learn from is trained: one that learns from the data itself is regularised."""
    return replace(config, weight_decay=config.weight_decay or TEACHER_DECAY) if isinstance(teacher, GMF) else config


def fine_tuning(config: TrainConfig, split: Split) -> TrainConfig:
    """How the fitted network is trained on the data.

    A step of the network costs its distinct ids, so the cheapest epoch has batches that leave hardly an id out; but
    there must be some steps to an epoch. Larger batches bear a larger rate. Most is gained at the end, where the rate
    comes down, so it is not stopped before.
    """
    batch_size = min(split.num_known_users + split.num_known_items, 32_768)
    batch_size = max(1, min(max(batch_size, 16_384), split.train.num_actions // 10))
    rate = 1e-3 * (batch_size / 16_384) ** 0.5
    epochs = min(config.epochs, FINE_TUNING_EPOCHS)
    return replace(
        config, epochs=epochs, patience=epochs, batch_size=batch_size, learning_rate=rate, schedule="one-cycle"
    )


def fit_to_teacher(
    model: Recommender,
    teacher: Recommender,
    split: Split,
    *,
    seed: int = 0,
    on_note: Callable[[str], None] = lambda text: None,
) -> None:
    """Make the schemes of `model` say what the tables of `teacher` say, and take over the rest of its weights."""
    targets = _gmf_targets(teacher) if isinstance(teacher, GMF) else _mlp_targets(teacher)
    _copy_shared_weights(teacher, model)
    ids = {
        "users": split.train.user_ids[: split.num_known_users],
        "items": split.train.item_ids[: split.num_known_items],
    }
    for side, (rows, metric) in targets.items():
        scheme = getattr(model, side)
        result = distil(rows, scheme, ids=scheme_inputs(scheme, ids[side]), metric=metric, seed=seed)
        on_note(f"{side}: {result.unexplained:.1%} of the table's variance unexplained, {result.seconds:.0f} s")


def untrained_teachers(model: Recommender, split: Split) -> list[Recommender]:
    """Recommenders with full tables, to be trained in this order, each by what the one before it expects.

    The last is of the model's kind and is its teacher.
    """

    def tables() -> dict[str, FullEmbedding]:
        dim, seed = model.users.embedding_dim, 2 * model.seed
        return {
            "users": FullEmbedding(dim, vocab_size=split.num_known_users, seed=seed),
            "items": FullEmbedding(dim, vocab_size=split.num_known_items, seed=seed + 1),
        }

    teachers: list[Recommender] = [GMF(**tables(), seed=model.seed)]
    if isinstance(model, MLP):
        teachers.append(MLP(**tables(), item_features=model.item_features, seed=model.seed))
    device = next(model.parameters()).device
    return [teacher.to(device) for teacher in teachers]


def _pair(model: Recommender, teacher: Recommender) -> torch.nn.ModuleDict:
    """Both as one module: what has to be kept to begin the last stage again."""
    return torch.nn.ModuleDict({"model": model, "teacher": teacher})


def _copy_shared_weights(teacher: Recommender, model: Recommender) -> None:
    """Everything but the embeddings. A GMF's weight is in the targets already."""
    shared = {key: value for key, value in teacher.state_dict().items() if not key.startswith(("users.", "items."))}
    if isinstance(model, GMF):
        shared["weight"] = torch.ones_like(model.weight)
    model.load_state_dict(shared, strict=False)


def _gmf_targets(teacher: Recommender) -> Mapping[str, tuple[Tensor, Tensor]]:
    """Factors of the same scores that share out each direction's weight σ evenly between users and items."""
    assert isinstance(teacher, GMF)
    users, items = _table(teacher.users) * teacher.weight.detach().double(), _table(teacher.items)
    user_basis, user_rest = _orthogonal(users)
    item_basis, item_rest = _orthogonal(items)
    left, sigma, right = torch.linalg.svd(user_rest @ item_rest.mT)
    metric = torch.diag((sigma / sigma.mean()) ** _POWER).float()
    return {
        "users": ((user_basis @ left * sigma.sqrt()).float(), metric),
        "items": ((item_basis @ right.mT * sigma.sqrt()).float(), metric),
    }


def _mlp_targets(teacher: Recommender) -> Mapping[str, tuple[Tensor, Tensor]]:
    """The tables themselves; an error counts by what the first layer makes of it."""
    assert isinstance(teacher, MLP)
    dim = teacher.users.embedding_dim
    first = teacher.first.weight.detach()
    return {
        "users": (_table(teacher.users).float(), first[:, :dim].mT.contiguous()),
        "items": (_table(teacher.items).float(), first[:, dim : 2 * dim].mT.contiguous()),
    }


def _orthogonal(rows: Tensor) -> tuple[Tensor, Tensor]:
    """[n, dim] as a product [n, dim] · [dim, dim], of which the first is orthogonal, also where n is less than dim."""
    missing = max(0, rows.shape[1] - rows.shape[0])
    basis, rest = torch.linalg.qr(torch.cat([rows, rows.new_zeros(missing, rows.shape[1])]))
    return basis[: rows.shape[0]], rest


def _table(scheme: torch.nn.Module) -> Tensor:
    assert isinstance(scheme, FullEmbedding)
    return scheme.table.detach().double()
