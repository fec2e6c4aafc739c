"""Compiled loops that make training batches: items that a user did not choose, and the distinct rows of a batch."""

from __future__ import annotations

import numpy as np

from . import Int32s, Int64s
from .compiling import compiled


@compiled()
def sort_within_users(starts: Int64s, items: Int32s) -> None:
    """Sort each user's items in place, so that membership is a binary search."""
    for user in range(len(starts) - 1):
        items[starts[user] : starts[user + 1]].sort()


@compiled()
def sample_negatives(
    users: Int32s,
    starts: Int64s,
    items: Int32s,
    num_items: int,
    seed: int,
    out: Int32s,
) -> None:
    """Fill `out` [len(users), n] with items drawn uniformly from those that are not among the user's `items`.

    `items[starts[u]:starts[u + 1]]` are the user's, sorted. If a user has chosen everything, the places get -1. The
    draws of a row depend on `seed` and the row's position alone.
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


@compiled()
def mark_distinct(
    rows: Int32s,
    batch: int,
    last_batch: Int32s,
    position: Int32s,
    distinct: Int64s,
    inverse: Int64s,
) -> int:
    """Number the distinct rows of a batch. Returns how many there are.

    `last_batch` and `position` [all rows] keep what earlier batches wrote. The number of the batch tells old from new,
    so that nothing needs to be cleared.
    """
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
def _contains(items: Int32s, first: int, last: int, wanted: np.int32) -> bool:
    end = last
    while first < last:
        middle = (first + last) >> 1
        if items[middle] < wanted:
            first = middle + 1
        else:
            last = middle
    return first < end and items[first] == wanted


@compiled()
def _num_distinct(items: Int32s, first: int, last: int) -> int:
    count = 0
    for position in range(first, last):
        if position == first or items[position] != items[position - 1]:
            count += 1
    return count
