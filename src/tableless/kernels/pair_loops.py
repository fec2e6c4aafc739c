"""Compiled loops over users and items: which items are drawn for a batch, the scores of pairs, and their ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import Floats, Int32s, Int64s
from .compiling import compiled


# fastmath lets a vector sum several terms at once. Only the order of addition changes.
@compiled(fastmath={"reassoc", "contract"})
def inner_products(users: Floats, items: Floats, user: Int64s, item: Int64s, out: Floats) -> None:
    """Fill `out` [batch, n] with the inner products of users[user[b]] and items[item[b, j]]."""
    dim = users.shape[1]
    for b in range(len(user)):
        left = users[user[b]]
        for j in range(item.shape[1]):
            right = items[item[b, j]]
            total = np.float32(0)
            for k in range(dim):
                total += left[k] * right[k]
            out[b, j] = total


@compiled(fastmath={"contract"})
def pair_gradients(
    gradient: Floats,
    users: Floats,
    items: Floats,
    user: Int64s,
    item: Int64s,
    of_users: Floats,
    of_items: Floats,
) -> None:
    """Add to `of_users` and `of_items` their gradients, given the `gradient` [batch, n] of the products."""
    dim = users.shape[1]
    for b in range(len(user)):
        left, of_left = users[user[b]], of_users[user[b]]
        for j in range(item.shape[1]):
            right, of_right = items[item[b, j]], of_items[item[b, j]]
            slope = gradient[b, j]
            for k in range(dim):
                of_left[k] += slope * right[k]
                of_right[k] += slope * left[k]


@compiled(fastmath={"nnan", "nsz"})
def pair_sums(users: Floats, items: Floats, user: Int64s, item: Int64s, out: Floats) -> None:
    """Fill `out` [n, width] with relu(users[user[p]] + items[item[p]])."""
    for p in range(len(user)):
        left, right, row = users[user[p]], items[item[p]], out[p]
        for k in range(row.size):
            total = left[k] + right[k]
            row[k] = total if total > 0 else np.float32(0)


@compiled(fastmath={"nnan", "nsz"})
def scatter_pairs(
    gradient: Floats, hidden: Floats, user: Int64s, item: Int64s, of_users: Floats, of_items: Floats
) -> None:
    """Add to `of_users` and `of_items` their gradients, given the `gradient` [n, width] of the sums `hidden`."""
    for p in range(len(user)):
        row, value = gradient[p], hidden[p]
        for k in range(row.size):
            row[k] = row[k] if value[k] > 0 else np.float32(0)
        to_user, to_item = of_users[user[p]], of_items[item[p]]
        for k in range(row.size):
            to_user[k] += row[k]
        for k in range(row.size):
            to_item[k] += row[k]


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
