"""Fitting by turns: schemes that round each row, as `coded` does, are fitted once more, each to what the other side is.

A table is trained with rows that can be any numbers. Once the items are rounded, other rows of the users would be
better, and the other way round. So the rows of one side are trained on, beside the other side as it is rounded, and are
rounded again. Then it is the other side's turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from ..data.splits import Split
from ..embedding.fit_progress import OnFit
from ..embedding.tables import FullEmbedding
from .evaluation import METRICS
from .models import Recommender
from .scoring import model_scores, scheme_inputs
from .stage_settings import with_selection
from .teachers import Stage, TableSide, fit_side, known_ids
from .training import TrainConfig
from .training_loop import OnBatch, Validation, train_model

_ROUNDS = 3
_EPOCHS, _BATCH_SIZE = 4, 4096
_RATE_OF_LISTS, _RATE_OF_PAIRS = 3e-3, 1e-3  # docs/tried.md has others


def fit_by_turns(
    model: Recommender,
    teacher: Recommender,
    split: Split,
    config: TrainConfig,
    *,
    on_note: Callable[[str], None] = lambda text: None,
    on_batch: OnBatch | None = None,
    on_fit: OnFit | None = None,
) -> Stage:
    """Fit the rounded schemes of a fitted model again, by turns, while the selected validation measure becomes better.

    `on_batch` is told of the training of rows, `on_fit` of the steps by which they are rounded, if there are any.
    Returns what was done.
    """
    start = time.perf_counter()
    targets = teacher.targets()
    rows = {side: target.rows for side, target in targets.items()}
    config = with_selection(config, model)
    deciding = config.deciding_measure
    validation = Validation(model, split, deciding=deciding)
    values = [validation.measure(model_scores(model, split))[deciding]]
    rate = _RATE_OF_LISTS if model.scores_are_products else _RATE_OF_PAIRS
    own = replace(
        config, epochs=_EPOCHS, patience=_EPOCHS, batch_size=_BATCH_SIZE, learning_rate=rate, schedule="one-cycle"
    )
    sides: list[TableSide] = ["users", "items"]
    for turn in range(2 * _ROUNDS):
        side = sides[turn % 2]
        if not getattr(model, side).rounds_rows:
            continue
        before = {key: value.clone() for key, value in model.state_dict().items()}
        rows[side] = _trained_rows(model, teacher, rows, side, split, own, on_batch)
        fit_side(model, side, rows[side], targets[side].metric, split, seed=config.seed, on_fit=on_fit)
        values.append(validation.measure(model_scores(model, split))[deciding])
        on_note(f"{side} rounded again: validation {METRICS[deciding].label} {values[-1]:.4f}")
        if values[-1] < max(values[:-1]):
            model.load_state_dict(before)
            if turn:
                break
    return {
        "stage": "by turns",
        f"validation_{deciding}": [round(value, 5) for value in values],
        "seconds": round(time.perf_counter() - start, 2),
    }


def _trained_rows(
    model: Recommender,
    teacher: Recommender,
    rows: dict[TableSide, torch.Tensor],
    side: TableSide,
    split: Split,
    config: TrainConfig,
    on_batch: OnBatch | None,
) -> torch.Tensor:
    """Better rows for one side, beside the vectors that the other side's scheme has."""
    tables: dict[str, FullEmbedding] = {}
    for name in rows:
        with torch.no_grad():
            scheme = getattr(model, name)
            vectors = rows[name] if name == side else scheme(scheme_inputs(scheme, known_ids(split, name)))
            tables[name] = FullEmbedding(scheme.embedding_dim, vocab_size=len(vectors))
            tables[name].table.copy_(vectors)
    pair = model.with_schemes(users=tables["users"], items=tables["items"])
    pair.take_over(teacher)
    pair.requires_grad_(False)
    tables[side].requires_grad_(True)
    train_model(pair, split, config, teacher=teacher, on_batch=on_batch)
    return tables[side].table.detach()
