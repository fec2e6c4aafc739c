"""Teachers: models of full tables that other models learn from."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.splits import Split
from ..embedding.distillation import Distillation, PoorFitWarning, default_visits, distil
from ..embedding.finishing import has_weights_to_round, round_by_parts
from ..embedding.fit_progress import FitReporter, OnFit
from ..embedding.scheme import EmbeddingScheme
from ..embedding.tables import FullEmbedding
from .backbone import rows_of_table
from .models import Recommender
from .scoring import scheme_inputs
from .spectrum import start_from_spectrum
from .stage_settings import shares_negatives
from .training import TrainConfig

TableSide = Literal["users", "items"]

Stage = dict[str, Any]
"""What one stage of training did, as plain values: its name, settings, seconds, epochs, whether it was capped."""
# A row counts in the fit by this power of how often its id occurs. Frequent items stand at the top of rankings. Users
# with many actions have long vectors, and would count for too much (docs/tried.md has other powers).
_WEIGHT_BY_COUNT = {"users": -0.3, "items": 0.5}
# All rows of a large table together get so many visits in its fit, and each row at least so many. The last stage goes
# on from there. Fits with two and eight times the visits were closer to the table, and no better in the end
# (docs/tried.md).
_ALL_VISITS, _FEWEST_VISITS = 1_500_000, 60


@dataclass(frozen=True)
class Teacher:
    """A trained model of full tables, and the stages that led to it."""

    model: Recommender
    stages: list[Stage]


def is_table(model: Recommender) -> bool:
    """Is it a model of full tables, which has nothing to be fitted?"""
    return model.users.is_the_table and model.items.is_the_table


@contextlib.contextmanager
def prepared(model: Recommender, split: Split, config: TrainConfig) -> Iterator[None]:
    """Give tables a start that is better than noise, where the loss can use it; and then train nothing but their rows.

    Other weights that scale the rows would change much faster than the rows do, and gain nothing.
    """
    if not (is_table(model) and shares_negatives(config, model)):
        yield
        return
    start_from_spectrum(model, split)
    rows = {id(table) for scheme in (model.users, model.items) for table in scheme.parameters()}
    others = [weight for weight in model.parameters() if id(weight) not in rows]
    for weight in others:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in others:
            weight.requires_grad_(True)


@torch.no_grad()
def make_scores_logits(teacher: Recommender, split: Split, config: TrainConfig) -> None:
    """Give users the length at which scores are what the softmax was trained with. No ranking changes."""
    if config.similarity != "product" and shares_negatives(config, teacher):
        users = rows_of_table(teacher.users)
        users /= config.temperature_for(split.actions_per_id) * teacher.prepare_users(users).norm(
            dim=1, keepdim=True
        ).clamp_min(1e-12)


def fit_to_teacher(
    model: Recommender,
    teacher: Recommender,
    split: Split,
    *,
    seed: int = 0,
    on_note: Callable[[str], None] = lambda text: None,
    on_fit: OnFit | None = None,
) -> Stage:
    """Fit the schemes of `model` to the tables of `teacher`, and take over the rest of its weights.

    `on_fit` is told of every step. Returns what was done, for each side.
    """
    start = time.perf_counter()
    model.take_over(teacher)
    stage: Stage = {"stage": "fit"}
    for side, (rows, metric) in teacher.targets().items():
        result = fit_side(model, side, rows, metric, split, seed=seed, on_fit=on_fit)
        on_note(f"{side}: {result.unexplained:.1%} of the table's variance unexplained, {result.seconds:.0f} s")
        stage[side] = asdict(result)
    return stage | {"seconds": round(time.perf_counter() - start, 2)}


def fit_side(
    model: Recommender,
    side: TableSide,
    rows: Tensor,
    metric: Tensor,
    split: Split,
    *,
    seed: int = 0,
    on_fit: OnFit | None = None,
) -> Distillation:
    """Fit the scheme of one side to rows, one for each known id, which count by how often the id occurs."""
    scheme, weights = getattr(model, side), row_weights(split, side)
    with warnings.catch_warnings():  # the note says how much is lost, and training goes on from there
        warnings.simplefilter("ignore", PoorFitWarning)
        own = scheme_inputs(scheme, known_ids(split, side))
        progress = partial(on_fit, f"fitting {side}") if on_fit else False
        visits = min(default_visits(len(rows)), max(_FEWEST_VISITS, _ALL_VISITS // len(rows)))
        several: dict[str, Any] = {"visits": visits, "seed": seed, "progress": progress}
        return distil(rows, scheme, ids=own, metric=metric, weights=weights, **several)


def row_weights(split: Split, side: TableSide) -> Tensor:
    """How much each known id counts in a fit."""
    train, known = split.train, len(known_ids(split, side))
    counts = np.bincount(train.items, minlength=known) if side == "items" else np.diff(train.starts)
    return torch.from_numpy((counts[:known] + 1.0) ** _WEIGHT_BY_COUNT[side]).float()


def round_schemes(
    model: Recommender,
    teacher: Recommender,
    split: Split,
    *,
    seed: int = 0,
    on_note: Callable[[str], None] = lambda text: None,
    on_fit: OnFit | None = None,
) -> list[Stage]:
    """Round the weights of networks that were trained `in_float32`. Returns what was done; nothing if there are none.

    Errors count as they did when the schemes were fitted to the teacher.
    """
    start, lost = time.perf_counter(), dict[str, float]()
    for side, (_, metric) in teacher.targets().items():
        scheme: EmbeddingScheme = getattr(model, side)
        if not has_weights_to_round(scheme):
            continue
        ids = scheme_inputs(scheme, known_ids(split, side)).to(next(scheme.parameters()).device)
        network, is_learned = scheme.learned_part(ids)
        reporter = FitReporter(partial(on_fit, f"rounding {side}") if on_fit else False, None)
        on_step = None if reporter.is_silent else reporter.on_step
        weights = row_weights(split, side).to(ids.device)[is_learned]
        own: dict[str, Any] = {"metric": metric, "weights": weights, "seed": seed}
        lost[side] = round_by_parts(network, ids[is_learned], **own, on_step=on_step)
        on_note(f"{side}: weights rounded by parts, {lost[side]:.2%} of the variance of the vectors lost")
    if not lost:
        return []
    return [{"stage": "rounding", "lost": lost, "seconds": round(time.perf_counter() - start, 2)}]


def known_ids(split: Split, side: TableSide) -> NDArray[np.int64]:
    """The ids of one side that training knows, in the order of their rows."""
    train = split.train
    return train.user_ids[: split.num_known_users] if side == "users" else train.item_ids[: split.num_known_items]


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

    teachers = [kind(**tables(), seed=model.seed) for kind in model.learns_from]
    device = next(model.parameters()).device
    return [teacher.to(device) for teacher in [*teachers, model.with_schemes(**tables())]]
