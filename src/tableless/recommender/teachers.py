"""Teachers: tables that a model learns from, and how its schemes are made to say what the tables say."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..data.splits import Split
from ..embedding.distillation import distil
from ..embedding.tables import FullEmbedding
from .models import GMF, MLP, Recommender
from .scoring import scheme_inputs
from .training import TrainConfig

TEACHER_DECAY = 0.2
"""Weight decay of the table to learn from: without it, the table overfits rare ids and the model learns that, too."""

# The table's scores are a sum over directions with weights σ, and an error counts in them by σ to the power ½. But the
# first direction is the popularity that everyone shares, and would take all attention: half that power did best
# without batch norm, on the validation data of MovieLens-1M (docs/decisions.md; with batch norm ⅛ was just ahead).
_POWER = 0.25

Stage = dict[str, Any]
"""What one stage of training did, as plain values: its name, settings, seconds, epochs, whether it was capped."""


@dataclass(frozen=True)
class Teacher:
    """A trained model of full tables, and the stages that led to it."""

    model: Recommender
    stages: list[Stage]


def is_table(model: Recommender) -> bool:
    """Is it a model of full tables, which has nothing to be fitted?"""
    return model.users.is_the_table and model.items.is_the_table


def teacher_training(config: TrainConfig, teacher: Recommender) -> TrainConfig:
    """How a table to learn from is trained: one that learns from the data itself is regularised."""
    return replace(config, weight_decay=config.weight_decay or TEACHER_DECAY) if isinstance(teacher, GMF) else config


def fit_to_teacher(
    model: Recommender,
    teacher: Recommender,
    split: Split,
    *,
    seed: int = 0,
    on_note: Callable[[str], None] = lambda text: None,
) -> Stage:
    """Make the schemes of `model` say what the tables of `teacher` say, and take over the rest of its weights.

    Returns what was done, for each side.
    """
    start = time.perf_counter()
    targets = _gmf_targets(teacher) if isinstance(teacher, GMF) else _mlp_targets(teacher)
    _copy_shared_weights(teacher, model)
    ids = {
        "users": split.train.user_ids[: split.num_known_users],
        "items": split.train.item_ids[: split.num_known_items],
    }
    stage: Stage = {"stage": "fit"}
    for side, (rows, metric) in targets.items():
        scheme = getattr(model, side)
        result = distil(rows, scheme, ids=scheme_inputs(scheme, ids[side]), metric=metric, seed=seed)
        on_note(f"{side}: {result.unexplained:.1%} of the table's variance unexplained, {result.seconds:.0f} s")
        stage[side] = asdict(result)
    return stage | {"seconds": round(time.perf_counter() - start, 2)}


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
        features = copy.deepcopy(model.item_features)  # its own, so that both can be saved in one file
        teachers.append(MLP(**tables(), item_features=features, seed=model.seed))
    device = next(model.parameters()).device
    return [teacher.to(device) for teacher in teachers]


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
