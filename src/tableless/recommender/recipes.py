"""Recipes: a model is trained from nothing, as in the paper, or learns from a table.

Trained from nothing, a scheme with fewer parameters than a table learns slowly, because every id's gradient passes
through weights that other ids share. A table has no such trouble. So the fast recipe has three stages:

1. A table is trained, with weight decay: the teacher.
2. The model's schemes are fitted to it. This is quick.
3. The model is trained for a few epochs more by what the table expects: the order of lists (losses.py), or of single
   pairs of the data where scores are no inner products.

Weights of 8 bits are float32 in all of them, and are rounded by parts at the end (embedding/finishing.py).

Then the table is thrown away. A model of full tables is the teacher itself. Where a table would not fit in memory, the
model is trained from nothing.

A backbone may say that its table has a teacher too (`learns_from`). A table under an MLP overfits sparse data long
before it has learned it. It learns far more from what a GMF expects than from the actions (docs/decisions.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from ..data.splits import Split
from ..embedding.finishing import in_float32
from ..embedding.fit_progress import OnFit
from .by_turns import fit_by_turns
from .distributed import Processes
from .evaluation import METRICS
from .models import Recommender
from .stage_settings import fine_tuning, teacher_training, with_loss, with_temperature
from .teachers import (
    Stage,
    Teacher,
    fit_to_teacher,
    is_table,
    make_scores_logits,
    prepared,
    round_schemes,
    untrained_teachers,
)
from .training import EpochReport, Journal, TrainConfig, is_capped
from .training_loop import OnBatch, OnEpoch, train_model

LARGEST_TEACHER = 100_000_000
"""Parameters of the largest table that is worth training: 1.2 GB with its optimizer's moments."""


@dataclass(frozen=True)
class Watchers:
    """Who is told how far training is: a remark, a batch, an epoch, a step of the fit to a table."""

    on_note: Callable[[str], None] = lambda text: None
    on_batch: OnBatch | None = None
    on_epoch: OnEpoch | None = None
    on_fit: OnFit | None = None


@dataclass(frozen=True)
class Training:
    """How a training went: the epochs of its last stage, and all its stages."""

    reports: list[EpochReport]
    stages: list[Stage] = field(default_factory=list)

    @property
    def on_data(self) -> Stage:
        """The last stage that went over the data in epochs."""
        return next(stage for stage in reversed(self.stages) if "epochs" in stage)

    @property
    def is_capped(self) -> bool:
        """Did any stage end at its limit of epochs, and not by itself?"""
        return any(stage.get("capped", False) for stage in self.stages)


def train_by_recipe(
    model: Recommender,
    split: Split,
    config: TrainConfig,
    *,
    teacher: Teacher | None = None,
    journal: Journal | None = None,
    processes: Processes = Processes(),  # noqa: B008 - frozen
    watchers: Watchers = Watchers(),
) -> Training:
    """Train a model in place, by the recipe that the config names.

    With a `teacher` (from `train_teacher`) the fast recipe trains no table of its own. A packed model is unpacked.
    """
    model.unpack()
    config = with_temperature(with_loss(config, model), model, split)
    if config.recipe == "fast" and (is_table(model) or not is_too_large(model, split)):
        with in_float32(model):
            return _train_fast(model, split, config, teacher, journal=journal, processes=processes, watchers=watchers)
    for scheme in (model.users, model.items):
        if scheme.needs_table:
            raise ValueError(
                f"{type(scheme).__name__} codes the rows of a trained table and cannot be trained from nothing; "
                "take the recipe fast (and for a table that is too large, the scheme dhe)"
            )
    if config.recipe == "fast":
        watchers.on_note(
            f"a table of {_table_size(model, split):,} parameters is too large to learn from: training from nothing"
        )
    return _staged_training(
        "from nothing", model, split, config, journal=journal, processes=processes, watchers=watchers
    )


def train_teacher(
    model: Recommender,
    split: Split,
    config: TrainConfig,
    *,
    processes: Processes = Processes(),  # noqa: B008 - frozen
    watchers: Watchers = Watchers(),
) -> Teacher:
    """The table that a model learns from: the same for all models of one kind, dimension, seed and features."""
    config = with_temperature(with_loss(config, model), model, split)
    found = _train_tables(untrained_teachers(model, split), split, config, processes=processes, watchers=watchers)
    assert found is not None
    return found


def _train_fast(
    model: Recommender,
    split: Split,
    config: TrainConfig,
    teacher: Teacher | None,
    *,
    journal: Journal | None,
    processes: Processes,
    watchers: Watchers,
) -> Training:
    """Learn from a table. The journal keeps the state before the last stage, so that a resumed run begins there."""
    several: dict[str, Any] = {"processes": processes, "watchers": watchers}
    if is_table(model) and teacher is not None:
        if journal is None:  # it was trained for others, and is the same
            model.load_state_dict(teacher.model.state_dict())
            return Training([], teacher.stages)
        teacher = None  # a run directory has the epochs of its own training
    tables = untrained_teachers(model, split)
    if is_table(model):
        tables = tables[:-1]  # the model itself is the last
        name, own, note = _name_of_table(model), teacher_training(config, model, split), "training the table"
    else:
        name, own = "tuning", fine_tuning(config, split, model)
        note = "training by what the table expects; the fitted model competes with these epochs"
    start = journal.start() if journal else None
    if start is None:
        teacher = teacher or _train_tables(tables, split, config, **several)
        before = _fit_and_keep(model, teacher, split, config, journal=journal, watchers=watchers) if teacher else []
    else:
        weights, before = start
        teacher = Teacher(tables[-1], [])
        _pair(model, teacher.model).load_state_dict(weights)
    watchers.on_note(note)
    with prepared(model, split, config):
        last = _staged_training(
            name,
            model,
            split,
            own,
            teacher=teacher.model if teacher else None,
            may_keep_start=not is_table(model),
            journal=journal,
            **several,
        )
    if is_table(model):
        make_scores_logits(model, split, config)  # as those of every table that others learn from
    watchers.on_note(kept_in_words(last.reports, METRICS[own.deciding_measure].label))
    told: dict[str, Any] = {"on_note": watchers.on_note, "on_fit": watchers.on_fit}
    rounding = round_schemes(model, teacher.model, split, seed=config.seed, **told) if teacher else []
    return Training(last.reports, [*before, *last.stages, *rounding])


def _fit_and_keep(
    model: Recommender,
    teacher: Teacher,
    split: Split,
    config: TrainConfig,
    *,
    journal: Journal | None,
    watchers: Watchers,
) -> list[Stage]:
    """Fit a model that is no table to its teacher, and keep both in the journal. Returns all stages so far."""
    stages = list(teacher.stages)
    if not is_table(model):
        told: dict[str, Any] = {"on_note": watchers.on_note, "on_fit": watchers.on_fit}
        watchers.on_note("fitting to the table")
        stages.append(fit_to_teacher(model, teacher.model, split, seed=config.seed, **told))
        if model.users.rounds_rows or model.items.rounds_rows:
            watchers.on_note("fitting by turns, each side to what the other has become")
            stages.append(fit_by_turns(model, teacher.model, split, config, on_batch=watchers.on_batch, **told))
    if journal:
        journal.keep_start(_pair(model, teacher.model).state_dict(), stages)
    return stages


def _train_tables(
    tables: Sequence[Recommender], split: Split, config: TrainConfig, *, processes: Processes, watchers: Watchers
) -> Teacher | None:
    """Train tables one after the other, each by what the one before it expects. Returns the last, if there is any."""
    teacher = None
    for table in tables:
        watchers.on_note(f"training a full table to learn from ({type(table).__name__})")
        several: dict[str, Any] = {"processes": processes, "watchers": watchers}
        before, settings = teacher.model if teacher else None, teacher_training(config, table, split)
        with prepared(table, split, config):
            own = _staged_training(_name_of_table(table), table, split, settings, teacher=before, **several)
        make_scores_logits(table, split, config)
        teacher = Teacher(table, [*(teacher.stages if teacher else []), *own.stages])
    return teacher


def _staged_training(
    name: str, model: Recommender, split: Split, config: TrainConfig, *, watchers: Watchers, **settings: Any
) -> Training:
    """One training on the data, with a record of what was done."""
    start = time.perf_counter()
    reports = train_model(model, split, config, on_batch=watchers.on_batch, on_epoch=watchers.on_epoch, **settings)
    stage: Stage = {
        "stage": name,
        "settings": asdict(config),
        "epochs": len(reports),
        "best_epoch": best_epoch(reports),
        "capped": is_capped(reports, config),
        "seconds": round(time.perf_counter() - start, 2),
    }
    return Training(reports, [stage])


def is_too_large(model: Recommender, split: Split) -> bool:
    """Would a table that such a model could learn from not fit in memory?"""
    return _table_size(model, split) > LARGEST_TEACHER


def _table_size(model: Recommender, split: Split) -> int:
    return (split.num_known_users + split.num_known_items) * model.users.embedding_dim


def best_epoch(reports: Sequence[EpochReport]) -> int | None:
    """The epoch whose weights were kept; None if those of the start were."""
    return next((report.epoch for report in reversed(reports) if report.is_best), None)


def kept_in_words(reports: Sequence[EpochReport], measure: str = "AUC") -> str:
    """Which weights a stage has kept, by which measure, on one line."""
    best = best_epoch(reports)
    if not reports:
        return "kept: the model as it was, since no epoch came to its end"
    if best is None:
        return f"kept: the fitted model itself was best, since no epoch after it had a better validation {measure}"
    return f"kept: epoch {best + 1}, whose validation {measure} of {reports[best].deciding:.4f} was the best"


def _name_of_table(model: Recommender) -> str:
    return f"table ({type(model).__name__})"


def _pair(model: Recommender, teacher: Recommender) -> torch.nn.ModuleDict:
    """Both as one module: what has to be kept to begin the last stage again."""
    return torch.nn.ModuleDict({"model": model, "teacher": teacher})
