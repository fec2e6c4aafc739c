"""Compiled loops over the actions of users: sums of vectors, and which of some items are a user's own."""

from __future__ import annotations

from . import Floats, Int32s, Int64s
from .compiling import compiled


@compiled(fastmath={"contract"})
def sum_over_items(starts: Int64s, items: Int32s, vectors: Floats, out: Floats) -> None:
    """`out` [users, width] ← for each user the sum of `vectors` [items, width] over the user's actions."""
    for user in range(len(out)):
        row = out[user]
        row[:] = 0
        for action in range(starts[user], starts[user + 1]):
            vector = vectors[items[action]]
            for k in range(row.size):
                row[k] += vector[k]


@compiled(fastmath={"contract"})
def sum_over_users(starts: Int64s, items: Int32s, vectors: Floats, out: Floats) -> None:
    """`out` [items, width] ← for each item the sum of `vectors` [users, width] over the actions with it."""
    out[:] = 0
    for user in range(len(vectors)):
        vector = vectors[user]
        for action in range(starts[user], starts[user + 1]):
            row = out[items[action]]
            for k in range(row.size):
                row[k] += vector[k]


@compiled()
def count_own(users: Int64s, starts: Int64s, items: Int32s, column: Int32s) -> int:
    """How many pairs `own_pairs` finds."""
    count = 0
    for row in range(len(users)):
        for action in range(starts[users[row]], starts[users[row] + 1]):
            count += column[items[action]] >= 0
    return count


@compiled()
def own_pairs(users: Int64s, starts: Int64s, items: Int32s, column: Int32s, out: Int64s) -> None:
    """Fill `out` [2, pairs] with the row and the column of each user's own items among those that have a column.

    `column` [all items] is -1 for an item without one.
    """
    count = 0
    for row in range(len(users)):
        for action in range(starts[users[row]], starts[users[row] + 1]):
            if column[items[action]] >= 0:
                out[0, count], out[1, count] = row, column[items[action]]
                count += 1
