"""Samples of a stream, of bounded size: items seen so far, recent actions, and past actions to learn again."""

from __future__ import annotations

import math

import numpy as np

from ..embedding.hashing import split_mix_64
from ..kernels import Int64s

RESERVOIR = 100_000
"""Items kept to draw negatives from: 1.6 MB, and after training the list of what can be recommended."""


class Reservoir:
    """A uniform sample of the distinct values offered so far, of bounded size.

    Kept are the values with the smallest hashes: each distinct value is as likely as any other, however often it came.
    """

    def __init__(self, capacity: int, seed: int) -> None:
        self._capacity = capacity
        self._seed = np.uint64(next(split_mix_64(seed)))
        self._random = np.random.default_rng(seed)
        self._hashes = np.empty(0, np.uint64)  # ascending
        self._values = np.empty(0, np.int64)  # beside their hashes

    @property
    def values(self) -> Int64s:
        """The sample, in the order of the hashes."""
        return self._values

    @values.setter
    def values(self, values: Int64s) -> None:
        self._hashes = self._hash(values)
        order = np.argsort(self._hashes)
        self._hashes, self._values = self._hashes[order], values[order]

    def offer(self, values: Int64s) -> None:
        """Let values in that are new and hash low enough."""
        hashes = self._hash(values)
        if len(self._hashes) == self._capacity:
            hashes = hashes[low := hashes < self._hashes[-1]]
            values = values[low]
        place = np.minimum(np.searchsorted(self._hashes, hashes), max(len(self._hashes) - 1, 0))
        new = self._hashes[place] != hashes if len(self._hashes) else np.ones(len(hashes), np.bool_)
        if new.any():
            both = np.concatenate([self._hashes, hashes[new]])
            self._hashes, first = np.unique(both, return_index=True)
            self._values = np.concatenate([self._values, values[new]])[first][: self._capacity]
            self._hashes = self._hashes[: self._capacity]

    def draw(self, *shape: int) -> Int64s:
        """Values at random."""
        return self._values[self._random.integers(0, len(self.values), shape)]

    def _hash(self, values: Int64s) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """A bijection, so that different values never share a hash."""
        z = values.view(np.uint64) ^ self._seed
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


class RecentItems:
    """The items of the latest actions, to draw from by popularity that halves with every `half_life` actions."""

    def __init__(self, half_life: int) -> None:
        self.half_life = half_life
        self.ring = np.zeros(10 * half_life, np.int64)  # what is older has a weight below a thousandth
        self.num_actions = 0

    def add(self, items: Int64s) -> None:
        """The latest actions, in order."""
        places = np.arange(self.num_actions, self.num_actions + len(items)) % len(self.ring)
        self.ring[places] = items
        self.num_actions += len(items)

    def draw(self, random: np.random.Generator, *shape: int) -> Int64s:
        """Items at random, recent actions first."""
        held = min(self.num_actions, len(self.ring))
        age = random.exponential(self.half_life / math.log(2), shape).astype(np.int64) % held
        return self.ring[(self.num_actions - 1 - age) % len(self.ring)]


class PastActions:
    """A uniform sample of all actions so far."""

    def __init__(self, capacity: int) -> None:
        self.pairs = np.zeros((capacity, 2), np.int64)  # user, item
        self.num_actions = 0

    def __len__(self) -> int:
        return min(self.num_actions, len(self.pairs))

    def add(self, users: Int64s, items: Int64s, random: np.random.Generator) -> None:
        """Let each action in with the chance that all others had."""
        number = np.arange(self.num_actions, self.num_actions + len(users))
        place = np.where(number < len(self.pairs), number, (random.random(len(users)) * (number + 1)).astype(np.int64))
        kept = place < len(self.pairs)
        self.pairs[place[kept]] = np.stack([users[kept], items[kept]], axis=1)
        self.num_actions += len(users)

    def draw(self, random: np.random.Generator, count: int) -> tuple[Int64s, Int64s]:
        """Users and items of actions at random."""
        drawn = self.pairs[random.integers(0, len(self), count)]
        return np.ascontiguousarray(drawn[:, 0]), np.ascontiguousarray(drawn[:, 1])
