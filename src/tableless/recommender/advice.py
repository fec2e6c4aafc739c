"""Advice: results that are no better than popularity alone, said in words, and what to try."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

FEWEST_STEPS = 50
"""Steps of an epoch. With fewer, a table may stay at the level of popularity until its patience ends."""
_SMALLEST_BATCH = 32


def is_above_popularity(results: Mapping[str, Any]) -> bool:
    """Is the test AUC above that of popularity alone, by more than its standard error?"""
    return bool(results["auc"] > results["popularity_auc"] + (results.get("auc_se") or 0.0))


def popularity_warning(
    results: Mapping[str, Any], *, training: Mapping[str, Any], scheme: str, num_actions: int
) -> str | None:
    """What to try if a model is not clearly better than popularity; None if it is.

    `training` has the settings of `TrainConfig`. Settings are named as in Python.
    """
    if is_above_popularity(results) or math.isnan(results["auc"]):  # not a number: nothing was measured
        return None
    auc, popularity = results["auc"], results["popularity_auc"]
    is_below = auc < popularity - (results.get("auc_se") or 0.0)
    found = "is below that of popularity alone" if is_below else "is not clearly above that of popularity alone"
    tries = "; ".join(_tries(results, training, scheme, num_actions))
    return f"The test AUC of {auc:.4f} {found} ({popularity:.4f}): the model has not learned tastes. Try {tries}."


def _tries(results: Mapping[str, Any], training: Mapping[str, Any], scheme: str, num_actions: int) -> Iterator[str]:
    batch_size, recipe = training.get("batch_size"), training.get("recipe")
    if batch_size and num_actions / batch_size < FEWEST_STEPS:
        steps = max(1, -(-num_actions // batch_size))
        smaller = max(_SMALLEST_BATCH, 1 << max(0, (num_actions // FEWEST_STEPS).bit_length() - 1))
        if smaller < batch_size:
            yield f"batch_size={smaller} (with {batch_size} an epoch of this data has few steps: {steps})"
    if training.get("epochs"):
        reason = " (training ended at its limit)" if results.get("capped") else ""
        yield f"more epochs than epochs={training['epochs']}{reason}"
    if recipe and scheme != "full":
        yield "recipe='paper'" if recipe == "fast" else "recipe='fast'"
    if scheme != "full":
        yield "a larger budget"
