"""Compiled loops of the stream learner: counts in a sketch, rows for ids of the moment, and steps on actions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import Doubles, Floats, Int64s
from .compiling import compiled

Bools = NDArray[np.bool_]

# Sums may be taken in another order, so that a vector register holds parts of them. So the last digit depends on the
# machine, as with the products of matrices.
_SUMS = {"nnan", "ninf", "nsz", "contract", "reassoc"}
_LEAST = 1e-8  # so that nothing is divided by zero


@compiled()
def count(buckets: Int64s, weights: Doubles, cells: Floats) -> None:
    """Count ids, by their `buckets` [ids, depth], in `cells` [half-lives, depth, width].

    Only an id's lowest cells are raised, because the others count too many already (conservative update).
    """
    for life in range(len(weights)):
        for row in range(len(buckets)):
            least = cells[life, 0, buckets[row, 0]]
            for k in range(1, buckets.shape[1]):
                least = min(least, cells[life, k, buckets[row, k]])
            counted = least + np.float32(weights[life])
            for k in range(buckets.shape[1]):
                if cells[life, k, buckets[row, k]] < counted:
                    cells[life, k, buckets[row, k]] = counted


@compiled()
def read_counts(buckets: Int64s, cells: Floats, out: Floats) -> None:
    """`out` [ids, half-lives] ← the lowest of each id's cells."""
    for row in range(len(buckets)):
        for life in range(cells.shape[0]):
            least = cells[life, 0, buckets[row, 0]]
            for k in range(1, buckets.shape[1]):
                least = min(least, cells[life, k, buckets[row, k]])
            out[row, life] = least


@compiled()
def find_slots(ids: Int64s, firsts: Int64s, held: Int64s, uses: Floats, ways: int, slots: Int64s) -> None:
    """`slots` [ids] ← the slot that holds each id, or -1. An id may be in the `ways` slots from `firsts` on."""
    for i in range(ids.size):
        slots[i] = -1
        for slot in range(firsts[i], firsts[i] + ways):
            if uses[slot] > 0 and held[slot] == ids[i]:
                slots[i] = slot
                break


@compiled()
def admit_rows(
    acting: Bools,
    counts: Floats,
    firsts: Int64s,
    uses: Floats,
    ways: int,
    slots: Int64s,
    evicted: Int64s,
) -> int:
    """Give the `acting` among distinct ids that have no slot that of a rarer id nearby. Returns how many lost theirs.

    `slots` [ids] are from `find_slots`, and are filled up. `evicted` [ids] is the slot that an id took from another,
    or -1. No slot of these ids is taken: its use is below zero until the end.
    """
    lost = 0
    for i in range(slots.size):
        evicted[i] = -1
        if slots[i] >= 0:
            uses[slots[i]] = -(counts[i] if acting[i] else uses[slots[i]])
    for i in range(slots.size):
        if slots[i] >= 0 or not acting[i]:
            continue
        worst = -1
        for slot in range(firsts[i], firsts[i] + ways):
            if uses[slot] >= 0 and (worst < 0 or uses[slot] < uses[worst]):
                worst = slot
        if worst < 0 or uses[worst] >= counts[i]:
            continue
        if uses[worst] > 0:
            evicted[i] = worst
            lost += 1
        slots[i] = worst
        uses[worst] = -counts[i]
    for i in range(slots.size):
        if slots[i] >= 0:
            uses[slots[i]] = -uses[slots[i]]
    return lost


@compiled(fastmath=_SUMS)
def learn_actions(
    user: Int64s,
    item: Int64s,
    corrections: Floats,
    users: Floats,
    items: Floats,
    biases: Floats,
    user_squares: Floats,
    item_squares: Floats,
    rates: Doubles,
    adapts: bool,
    slopes: Floats,
) -> float:
    """A step on each action, one after the other: its item (`item[:, 0]`) against the others of its row, by softmax.

    `users` and `items` [ids, dim] are changed in place. A user's last number is 1, so that an item's last number is a
    bias of its own. `biases` [items] are those of popularity, and `slopes` [items] gets the loss's derivative by them.
    `corrections` [items] are logarithms of how likely an item is drawn. `rates` are those of users, items and own
    biases; if it `adapts`, they are divided by the root of the squares so far, as AdaGrad does (`user_squares` and
    `item_squares` [ids, 2]). Returns the sum of losses.
    """
    dim, choices, share = users.shape[1] - 1, item.shape[1], np.float32(adapts)
    scores, pull = np.empty(choices, np.float32), np.empty(dim, np.float32)
    least = _LEAST if adapts else 1.0
    total = 0.0
    for action in range(len(user)):
        own = users[user[action]]
        total += _probabilities(own, item[action], items, biases, corrections, scores)
        pull[:] = 0
        length = _score(own, own) - np.float32(1)
        for j in range(choices):
            k, slope = item[action, j], scores[j] - np.float32(j == 0)
            slopes[k] += slope
            vector, squares = items[k], item_squares[k]
            squares[0] += share * slope * slope * length
            squares[1] += share * slope * slope
            step = slope * np.float32(rates[1] / np.sqrt(squares[0] + least))
            for d in range(dim):
                pull[d] += slope * vector[d]
                vector[d] -= step * own[d]
            vector[dim] -= slope * np.float32(rates[2] / np.sqrt(squares[1] + least))
        user_squares[user[action], 0] += share * _score(pull, pull)
        step = np.float32(rates[0] / np.sqrt(user_squares[user[action], 0] + least))
        for d in range(dim):
            own[d] -= step * pull[d]
    return total


@compiled(fastmath=_SUMS)
def _probabilities(own: Floats, item: Int64s, items: Floats, biases: Floats, corrections: Floats, out: Floats) -> float:
    """`out` [choices] ← the chance of each choice of an action. Returns the loss."""
    highest = np.float32(-1e30)
    for j in range(item.size):
        k = item[j]
        out[j] = _score(own, items[k]) + biases[k] - corrections[k]
        if j and k == item[0]:  # drawn against itself
            out[j] = np.float32(-1e30)
        highest = max(highest, out[j])
    first, whole = out[0] - highest, np.float32(0)
    for j in range(item.size):
        out[j] = np.exp(out[j] - highest)
        whole += out[j]
    for j in range(item.size):
        out[j] /= whole
    return float(np.log(whole) - first)


@compiled(fastmath=_SUMS)
def score_actions(user: Int64s, item: Int64s, users: Floats, items: Floats, biases: Floats, scores: Floats) -> None:
    """`scores` [actions, candidates] ← those that `learn_actions` begins with, without corrections."""
    for action in range(len(user)):
        for j in range(item.shape[1]):
            k = item[action, j]
            scores[action, j] = _score(users[user[action]], items[k]) + biases[k]


@compiled(inline="always", fastmath=_SUMS)
def _score(user: Floats, item: Floats) -> np.float32:
    score = np.float32(0)
    for d in range(user.size):
        score += user[d] * item[d]
    return score
