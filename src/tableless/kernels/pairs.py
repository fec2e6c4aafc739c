"""Compiled loops over pairs of a user and an item: their scores, and the gradients of the scores."""

from __future__ import annotations

import numpy as np

from . import Floats, Int64s
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
