"""Compiled loops over rows of users and items: sampling what a user did not choose, and counting in rankings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .compiling import compiled

Counts = NDArray[np.int64]
Rows = NDArray[np.int32]


@compiled()
def sort_within_users(starts: NDArray[np.int64], items: NDArray[np.int32]) -> None:
    """Sort each user's items in place, so that membership is a binary search."""
    for user in range(len(starts) - 1):
        items[starts[user] : starts[user + 1]].sort()


@compiled()
def sample_negatives(
    users: NDArray[np.int32],
    starts: NDArray[np.int64],
    items: NDArray[np.int32],
    num_items: int,
    seed: int,
    out: NDArray[np.int32],
) -> None:
    """Fill `out` [len(users), n] with items drawn uniformly from those that are not among the user's `items`.

    `items[starts[u]:starts[u + 1]]` are the user's, sorted. Where a user has chosen everything there is no negative:
    the place gets -1. Each row's draws depend on `seed` and its position alone, not on how the rows are cut in batches.
    """
    for row in range(len(users)):
        first, last = starts[users[row]], starts[users[row] + 1]
        exhausted = _num_distinct(items, first, last) >= num_items if last - first >= num_items else False
        state = np.uint64(seed) + np.uint64(row) * np.uint64(0xD1342543DE82EF95)
        for place in range(out.shape[1]):
            out[row, place] = -1
            while not exhausted:
                state += np.uint64(0x9E3779B97F4A7C15)
                candidate = np.int32(_below(_mix(state), num_items))
                if not _contains(items, first, last, candidate):
                    out[row, place] = candidate
                    break


@compiled(inline="always")
def _mix(state: np.uint64) -> np.uint64:
    """The output function of SplitMix64."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@compiled(inline="always")
def _below(random: np.uint64, bound: int) -> np.int64:
    """A number in [0, bound) from the upper 32 random bits; its bias is below bound / 2^32."""
    return np.int64(((random >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@compiled(inline="always")
def _contains(items: NDArray[np.int32], first: int, last: int, wanted: np.int32) -> bool:
    end = last
    while first < last:
        middle = (first + last) >> 1
        if items[middle] < wanted:
            first = middle + 1
        else:
            last = middle
    return first < end and items[first] == wanted


@compiled()
def _num_distinct(items: NDArray[np.int32], first: int, last: int) -> int:
    count = 0
    for position in range(first, last):
        if position == first or items[position] != items[position - 1]:
            count += 1
    return count


@compiled()
def lost_among(bars: NDArray[np.float32], starts: Counts) -> NDArray[np.float64]:
    """Places that each held-out item loses to other held-out items of its user, a tie counting half."""
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
    scores: NDArray[np.float32],
    bars: NDArray[np.float32],
    starts: Counts,
    touched_starts: Counts,
    touched: Rows,
    above: Counts,
    equal: Counts,
) -> None:
    """Compare the bars of each row with all of the row, then take back what the user has touched."""
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
    scores: NDArray[np.float32],
    first: int,
    users: Counts,
    bars: NDArray[np.float32],
    margins: NDArray[np.float32],
    starts: Counts,
    touched_starts: Counts,
    touched: Rows,
    place_of: Rows,
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


@compiled()
def mark_distinct(
    rows: NDArray[np.int32],
    batch: int,
    last_batch: NDArray[np.int32],
    position: NDArray[np.int32],
    distinct: NDArray[np.int64],
    inverse: NDArray[np.int64],
) -> int:
    """Number the distinct rows of a batch; `last_batch` and `position` remember rows, so that nothing is cleared."""
    count = 0
    for index in range(len(rows)):
        row = rows[index]
        if last_batch[row] != batch:
            last_batch[row] = batch
            position[row] = count
            distinct[count] = row
            count += 1
        inverse[index] = position[row]
    return count
