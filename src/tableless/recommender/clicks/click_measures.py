"""How good click models are: AUC and log loss with their standard errors, and the floor under both.

The floor of the log loss is the base rate for everyone. That of the AUC is the click rate of each value of the one
column that tells most by itself: of the items, for instance, which is popularity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...data.clicks.split import ClickSplit, Examples
from ...data.clicks.table import IdData
from ...kernels import Doubles
from ...kernels.idle_cores import on_idle_cores
from .click_model import ClickModel

_BATCH = 16_384
_PRIOR = 10  # rows by which the rate of a rare value is drawn to the base rate
_LEAST = 1e-7  # a probability of 0 would have an endless loss


@torch.no_grad()
def predict(model: ClickModel, examples: Examples) -> Tensor:
    """The logits of examples [n]."""
    model.eval()
    device = next(model.parameters()).device
    parts = [torch.empty(0)]
    for inputs, _ in examples.batches(_BATCH):
        with on_idle_cores():
            parts.append(model({name: values.to(device) for name, values in inputs.items()}).cpu())
    return torch.cat(parts)


def measure_clicks(logits: Tensor, labels: NDArray[np.float32]) -> dict[str, float]:
    """AUC and log loss, each with its standard error over the rows."""
    scores, answers = logits.double().numpy(), labels.astype(np.float64)
    auc, auc_error = auc_with_error(scores, answers > 0)
    losses = np.logaddexp(0.0, scores) - answers * scores
    return {"auc": auc, "auc_se": auc_error, **_mean_with_error(losses)}


def auc_with_error(scores: Doubles, is_click: NDArray[np.bool_]) -> tuple[float, float]:
    """The chance that a click is above a row without one (ties count half), and DeLong's standard error of it."""
    clicks, others = scores[is_click], scores[~is_click]
    if not len(clicks) or not len(others):
        return math.nan, math.nan
    above = _share_below(clicks, others)  # [clicks]: the share of other rows that each is above
    below = 1 - _share_below(others, clicks)
    variance = above.var() / len(clicks) + below.var() / len(others)
    return float(above.mean()), float(math.sqrt(variance))


def floor_of(split: ClickSplit, train: Examples, validation: Examples, test: Examples) -> dict[str, Any]:
    """What needs no model: the base rate of training, and the rates of the column that is best on validation data."""
    rate = float(train.labels.mean())
    losses = -(test.labels * math.log(rate) + (1 - test.labels) * math.log(1 - rate))
    best: tuple[float, str, Callable[[Examples], Doubles]] | None = None
    for name, data in split.table.data.items():
        if isinstance(data, IdData):
            rates = _rates(train, data, name, rate)
            auc = auc_with_error(rates(validation), validation.labels > 0)[0]
            best = (auc, name, rates) if best is None or auc > best[0] else best
    base = {f"base_rate_{name}": value for name, value in _mean_with_error(losses).items()}
    if best is None:
        return {"base_rate": rate, **base}
    auc, error = auc_with_error(best[2](test), test.labels > 0)
    return {"base_rate": rate, **base, "column": best[1], "auc": auc, "auc_se": error}


def no_better_than_floor(results: Mapping[str, Any]) -> str | None:
    """A warning, if one column by itself says as much as the model."""
    floor = results["popularity"]
    if "auc" not in floor or results["auc"] > floor["auc"]:
        return None
    return (
        f"the test AUC of {results['auc']:.4f} is not above that of the click rates of one column alone "
        f"({floor['column']!r}: {floor['auc']:.4f}). There may be too little data, or the budget is too small"
    )


def _rates(train: Examples, data: IdData, name: str, rate: float) -> Callable[[Examples], Doubles]:
    """The click rate of each value of a column in training, drawn to the base rate where there are few rows."""

    def codes(examples: Examples) -> NDArray[np.int32]:
        rows = examples.item_rows if name in examples.table.of_item else examples.rows
        return data.codes[rows]

    own, size = codes(train), len(data.ids)
    clicks = np.bincount(own, weights=train.labels, minlength=size)
    rates = (clicks + _PRIOR * rate) / (np.bincount(own, minlength=size) + _PRIOR)
    return lambda examples: rates[codes(examples)]


def _mean_with_error(losses: NDArray[Any]) -> dict[str, float]:
    losses = np.clip(losses.astype(np.float64), 0.0, -math.log(_LEAST))
    return {"log_loss": float(losses.mean()), "log_loss_se": float(losses.std() / math.sqrt(len(losses)))}


def _share_below(scores: Doubles, others: Doubles) -> Doubles:
    """For each score the share of the others that is below it; equal ones count half."""
    ordered = np.sort(others)
    left, right = (np.searchsorted(ordered, scores, side) for side in ("left", "right"))
    return (left + right) / (2 * len(others))
