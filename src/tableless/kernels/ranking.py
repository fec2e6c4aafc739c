"""Compiled loops that count how many items are ahead of a held-out one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import Floats, Int32s, Int64s
from .compiling import compiled


@compiled()
def lost_among(bars: Floats, starts: Int64s) -> NDArray[np.float64]:
    """Places that each held-out item loses to other held-out items of its user. A tie counts half."""
    lost = np.zeros(len(bars))
    for user in range(len(starts) - 1):
        for action in range(starts[user], starts[user + 1]):
            for other in range(starts[user], starts[user + 1]):
                if bars[other] > bars[action]:
                    lost[action] += 1.0
                elif bars[other] == bars[action] and other != action:
                    lost[action] += 0.5
    return lost


@compiled()
def count_above_and_equal(
    scores: Floats,
    bars: Floats,
    starts: Int64s,
    touched_starts: Int64s,
    touched: Int32s,
    above: Int64s,
    equal: Int64s,
) -> None:
    """For each bar: how many scores of its row are above it and equal to it, except those of touched items."""
    for row in range(len(scores)):
        for action in range(starts[row], starts[row + 1]):
            bar = bars[action]
            higher, same = 0, 0
            for item in range(scores.shape[1]):
                higher += scores[row, item] > bar
                same += scores[row, item] == bar
            for place in range(touched_starts[row], touched_starts[row + 1]):
                higher -= scores[row, touched[place]] > bar
                same -= scores[row, touched[place]] == bar
            above[action], equal[action] = higher, same


@compiled()
def add_lost(
    scores: Floats,
    first: int,
    users: Int64s,
    bars: Floats,
    margins: Floats,
    starts: Int64s,
    touched_starts: Int64s,
    touched: Int32s,
    place_of: Int32s,
    lost: NDArray[np.float64],
) -> None:
    """Add what each held-out item loses to the untouched items at places `first`, `first` + 1, … of the order."""
    for row in range(len(users)):
        user = users[row]
        for action in range(starts[user], starts[user + 1]):
            bar, margin = bars[action], margins[action]
            total = 0.0
            for place in range(scores.shape[1]):
                total += _lost_to(scores[row, place] - bar, margin)
            for place in range(touched_starts[user], touched_starts[user + 1]):
                at = place_of[touched[place]] - first
                if 0 <= at < scores.shape[1]:
                    total -= _lost_to(scores[row, at] - bar, margin)
            lost[action] += total


@compiled(inline="always")
def _lost_to(difference: np.float32, margin: np.float32) -> float:
    """One place to a higher score, half a place to an equal one."""
    if difference > margin:
        return 1.0
    return 0.5 if difference >= -margin else 0.0
