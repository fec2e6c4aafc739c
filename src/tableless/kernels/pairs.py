"""The compiled loops behind training. Importing this module imports numba, so do it where a kernel is called."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .compiling import compiled

Floats = NDArray[np.float32]
Positions = NDArray[np.int64]


# fastmath lets the sum be taken in vector lanes; order of addition is all that changes.
@compiled(fastmath={"reassoc", "contract"})
def pair_products(users: Floats, items: Floats, user: Positions, item: Positions, out: Floats) -> None:
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
    user: Positions,
    item: Positions,
    of_users: Floats,
    of_items: Floats,
) -> None:
    """Add to `of_users` and `of_items` what `gradient` [batch, n] of the products makes of them."""
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
def pair_sums(users: Floats, items: Floats, user: Positions, item: Positions, out: Floats) -> None:
    """Fill `out` [n, width] with relu(users[user[p]] + items[item[p]])."""
    for p in range(len(user)):
        left, right, row = users[user[p]], items[item[p]], out[p]
        for k in range(row.size):
            total = left[k] + right[k]
            row[k] = total if total > 0 else np.float32(0)


@compiled(fastmath={"nnan", "nsz"})
def scatter_pairs(
    gradient: Floats, hidden: Floats, user: Positions, item: Positions, of_users: Floats, of_items: Floats
) -> None:
    """Add to `of_users` and `of_items` what `gradient` [n, width] of the sums, which were `hidden`, makes of them."""
    for p in range(len(user)):
        row, value = gradient[p], hidden[p]
        for k in range(row.size):
            row[k] = row[k] if value[k] > 0 else np.float32(0)
        to_user, to_item = of_users[user[p]], of_items[item[p]]
        for k in range(row.size):
            to_user[k] += row[k]
        for k in range(row.size):
            to_item[k] += row[k]
