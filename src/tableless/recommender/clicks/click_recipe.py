"""The fast recipe for click models, as for recommenders (recipes.py): a teacher, a fit, and tuning by the teacher.

1. A model of full tables is trained, with weight decay, until its validation loss no longer falls.
2. The schemes of the small model are fitted to the teacher's tables. The rest of its weights are the teacher's.
3. All is trained by how likely the teacher thinks each click; then weights of 8 bits are rounded by parts.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...data.clicks.split import ClickSplit
from ...embedding.distillation import PoorFitWarning, distil
from ...embedding.finishing import has_weights_to_round, in_float32, round_by_parts
from ...embedding.scheme import EmbeddingScheme
from ..runs import choose_device
from ..teachers import Stage
from .click_model import ClickModel
from .click_training import ClickTraining, ClickWatchers, train_click_model
from .sizing import ClickModelConfig, full_tables

TABLE_DECAY = 0.5
_WEIGHT_BY_COUNT = 0.5  # frequent values count more in a fit
TUNING_EPOCHS = 4  # in one cycle of the rate; ten gained nothing more on Globo
_TUNING_RATE = 1e-3  # of the backbone; a scheme that needs smaller steps decides
_TUNING_BATCH = 2  # times the batch of the teacher


@dataclass(frozen=True)
class ClickTeacher:
    """A trained model of full tables, and the stages that led to it."""

    model: ClickModel
    stages: list[Stage]


@dataclass(frozen=True)
class _Target:
    """What one scheme is fitted to: the ids that it is asked for, their rows, and how much each counts."""

    name: str
    scheme: EmbeddingScheme
    ids: Tensor
    rows: Tensor
    weights: Tensor


def train_click_teacher(
    split: ClickSplit,
    config: ClickModelConfig,
    settings: ClickTraining,
    *,
    device: str = "auto",
    watchers: ClickWatchers = ClickWatchers(),  # noqa: B008 - frozen
) -> ClickTeacher:
    """Train the model of full tables."""
    teacher = full_tables(split, config, seed=settings.seed).to(choose_device(device))
    watchers.on_note("training full tables to learn from")
    return ClickTeacher(teacher, [train_click_model("tables", teacher, split, settings, watchers=watchers)])


def learn_from_teacher(
    model: ClickModel,
    teacher: ClickTeacher,
    split: ClickSplit,
    settings: ClickTraining,
    *,
    watchers: ClickWatchers = ClickWatchers(),  # noqa: B008 - frozen
) -> list[Stage]:
    """Fit a model to the teacher and tune it, in place. Returns all stages."""
    model.unpack()
    with in_float32(model):
        watchers.on_note("fitting to the tables")
        stages = [*teacher.stages, _fit(model, teacher.model, split, settings.seed, watchers)]
        watchers.on_note("training by what the tables expect; the fitted model competes with these epochs")
        tuning = replace(
            settings,
            epochs=min(settings.epochs, TUNING_EPOCHS),
            patience=TUNING_EPOCHS,
            learning_rate=min(
                [_TUNING_RATE, *(target.scheme.tuning_rate for target in _targets(model, teacher.model, split))]
            ),
            batch_size=_TUNING_BATCH * settings.batch_size,
            weight_decay=0.0,
            one_cycle=True,
        )
        stages.append(
            train_click_model("tuning", model, split, tuning, teacher=teacher.model.eval(), watchers=watchers)
        )
    return [*stages, *_round(model, teacher.model, split, settings.seed, watchers)]


def _fit(model: ClickModel, teacher: ClickModel, split: ClickSplit, seed: int, watchers: ClickWatchers) -> Stage:
    start, results = time.perf_counter(), dict[str, Any]()
    take_over(model, teacher)
    for target in _targets(model, teacher, split):
        with warnings.catch_warnings():  # the note says how much is lost, and training goes on from there
            warnings.simplefilter("ignore", PoorFitWarning)
            result = distil(
                target.rows, target.scheme, ids=target.ids, weights=target.weights, seed=seed, progress=False
            )
        watchers.on_note(f"{target.name}: {result.unexplained:.1%} of the table's variance unexplained")
        results[target.name] = asdict(result)
    return {"stage": "fit", "columns": results, "seconds": round(time.perf_counter() - start, 2)}


@torch.no_grad()
def take_over(model: ClickModel, teacher: ClickModel) -> None:
    """Everything that is no scheme, and tables as they are."""
    model.backbone.load_state_dict(teacher.backbone.state_dict())
    for name in model.own_names:
        own, theirs = model.of_column(name), teacher.of_column(name)
        if name not in model.value_columns() or model.value_columns()[name].scheme.is_the_table:
            own.load_state_dict(theirs.state_dict())


def _targets(model: ClickModel, teacher: ClickModel, split: ClickSplit) -> list[_Target]:
    """What each scheme learns: of a closed one all rows, of an open one the ids that are known."""
    found = []
    for name, column in model.value_columns().items():
        if column.scheme.is_the_table:
            continue
        rows, ids, weights = _table_of(teacher, split, name)
        if column.known is None:
            found.append(_Target(name, column.scheme, ids, rows[1:], weights[1:]))
        else:
            found.append(_Target(name, column.scheme, torch.arange(len(rows), device=rows.device), rows, weights))
    if model.joint is not None and model.joint.network is not None:
        parts = [(name, *_table_of(teacher, split, name)) for name in model.joint_names]
        joint_ids = torch.cat([model.joint.network_ids(name, ids) for name, _, ids, _ in parts])
        rows = torch.cat([own[1:] for _, own, _, _ in parts])
        weights = torch.cat([own[1:] for *_, own in parts])
        found.append(_Target("joint", model.joint.network, joint_ids, rows, weights))
    return found


def _table_of(teacher: ClickModel, split: ClickSplit, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """The teacher's rows [known + 1], the ids of all but the first [known], and how much each row counts."""
    known, column = split.known[name], teacher.value_columns()[name]
    assert column.known is not None
    (table,) = column.scheme.parameters()
    ids, counts = torch.from_numpy(known.ids).to(table.device), torch.from_numpy(known.counts).to(table.device)
    place = column.known(ids) - 1
    ordered, weights = torch.empty_like(ids), torch.ones(len(ids) + 1, device=table.device)
    ordered[place] = ids
    weights[1 + place] = (counts + 1.0).float() ** _WEIGHT_BY_COUNT
    return table.detach(), ordered, weights


def _round(
    model: ClickModel, teacher: ClickModel, split: ClickSplit, seed: int, watchers: ClickWatchers
) -> list[Stage]:
    """Round the weights of networks that were trained in float32."""
    start, lost = time.perf_counter(), dict[str, float]()
    for target in _targets(model, teacher, split):
        if not has_weights_to_round(target.scheme):
            continue
        network, is_learned = target.scheme.learned_part(target.ids)
        metric, weights = torch.eye(target.rows.shape[-1], device=target.rows.device), target.weights[is_learned]
        lost[target.name] = round_by_parts(network, target.ids[is_learned], metric=metric, weights=weights, seed=seed)
        watchers.on_note(f"{target.name}: weights rounded by parts, {lost[target.name]:.2%} of the variance lost")
    if not lost:
        return []
    return [{"stage": "rounding", "lost": lost, "seconds": round(time.perf_counter() - start, 2)}]
