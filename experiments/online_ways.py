"""The ways that compete on a stream. Each scores a batch of candidates, and then learns the same batch."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Protocol

import numpy as np
import torch

from tableless.embedding.hashing import HashFamily
from tableless.kernels import Floats, Int64s
from tableless.recommender.stream_learner import Prediction, StreamConfig, StreamLearner

DIM = 32


@dataclasses.dataclass(frozen=True)
class Asked:
    """A batch: candidates are the item that was chosen, items drawn from all that were seen, and recent ones."""

    users: Int64s
    candidates: Int64s  # [actions, 1 + 2 · negatives]
    num_seen: int


class Way(Protocol):
    """Something that predicts a stream."""

    def score(self, batch: Asked) -> Floats:
        """Scores of all candidates, before they are learned."""

    def learn(self, batch: Asked) -> None:
        """Learn the batch that was scored last."""

    @property
    def num_bytes(self) -> int:
        """What must be stored to answer."""


class Popularity:
    """Everybody gets what is chosen most, by exact counts, which may halve with every `half_life` actions."""

    def __init__(self, items: Int64s, *, half_life: float) -> None:
        self._ids = np.unique(items)
        self._counts = np.zeros(len(self._ids))
        self._half_life = half_life

    def score(self, batch: Asked) -> Floats:
        """Counts."""
        return self._counts[np.searchsorted(self._ids, batch.candidates)]  # type: ignore[return-value]

    def learn(self, batch: Asked) -> None:
        """Count."""
        self._counts *= 2.0 ** (-len(batch.users) / self._half_life)
        self._counts += np.bincount(np.searchsorted(self._ids, batch.candidates[:, 0]), minlength=len(self._ids))

    @property
    def num_bytes(self) -> int:
        """A count and an id for each item."""
        return 12 * len(self._ids)


class Tables:
    """Rows for users and items, learned by the steps that the stream learner's rows get.

    A `growing` table has a row for each id, which is the same as one that all ids have from the start: until an id
    comes, nothing reads or changes its row. Otherwise ids share rows by a hash. The last number of an item is a bias.
    """

    def __init__(
        self,
        users: Int64s,
        items: Int64s,
        *,
        growing: bool,
        dim: int,
        num_bytes: int,
        seed: int,
        rates: list[float],
        adapts: bool,
        negatives: str,
        initial_std: float,
    ) -> None:
        self._rates, self._adapts, self._negatives = np.array(rates), adapts, negatives
        self._ids = [np.unique(ids) for ids in (users, items)]
        sizes = [len(ids) for ids in self._ids]
        rows = sizes if growing else [num_bytes * size // (4 * dim * sum(sizes)) for size in sizes]
        self._hashes = [HashFamily(1, count, 2 * seed + side, mixed=True) for side, count in enumerate(rows)]
        self._growing = growing
        random = np.random.default_rng(seed)
        self._tables = [random.normal(0, initial_std, (count, dim)).astype(np.float32) for count in rows]
        self._tables[0][:, -1], self._tables[1][:, -1] = 1, 0
        self._squares = [np.zeros((count, 2), np.float32) for count in rows]
        self._counts, self._actions = np.zeros(rows[1]), 0

    def score(self, batch: Asked) -> Floats:
        """Inner products."""
        from tableless.kernels import stream_loops as loops

        user, item = self._rows(0, batch.users), self._rows(1, batch.candidates)
        scores = np.empty(item.shape, np.float32)
        zeros = np.zeros(len(self._tables[1]), np.float32)
        loops.score_actions(user, item, self._tables[0], self._tables[1], zeros, scores)
        return scores

    def learn(self, batch: Asked) -> None:
        """A step on each action, against all candidates, or against those of one kind."""
        from tableless.kernels import stream_loops as loops

        user, item = self._rows(0, batch.users), self._rows(1, batch.candidates)
        half = item.shape[1] // 2
        corrections = np.zeros(len(self._tables[1]), np.float32)
        if self._negatives == "both":
            recent = self._counts / max(self._counts.sum(), 1.0)
            corrections = np.log(recent / 2 + 0.5 / batch.num_seen).astype(np.float32)
        else:
            item = np.ascontiguousarray(item[:, : 1 + half])
        slopes = np.zeros(len(corrections), np.float32)
        zeros = np.zeros_like(corrections)
        loops.learn_actions(
            user, item, corrections, self._tables[0], self._tables[1], zeros, self._squares[0], self._squares[1],
            self._rates, self._adapts, slopes,
        )  # fmt: skip
        self._counts *= 2.0 ** (-len(user) / StreamConfig.half_life)
        self._counts += np.bincount(item[:, 0], minlength=len(self._counts))

    def _rows(self, side: int, ids: Int64s) -> Int64s:
        if self._growing:
            return np.searchsorted(self._ids[side], ids)
        return self._hashes[side](torch.from_numpy(ids))[..., 0].numpy()

    @property
    def num_bytes(self) -> int:
        """The rows, and an id for each where ids have rows of their own."""
        ids = sum(8 * len(ids) for ids in self._ids) if self._growing else 0
        return sum(table.nbytes for table in self._tables) + ids


class Learner:
    """The library's stream learner, on the candidates of the experiment."""

    def __init__(self, *, num_bytes: int, seed: int, **config: Any) -> None:
        self._learner = StreamLearner(f"{num_bytes}B", StreamConfig(DIM, seed=seed, **config))
        self._predicted: Prediction | None = None

    def score(self, batch: Asked) -> Floats:
        """As the learner predicts."""
        self._learner.seen.offer(batch.candidates[:, 0])
        self._predicted = self._learner.predict(batch.users, batch.candidates)
        return self._predicted.scores

    def learn(self, batch: Asked) -> None:
        """As the learner learns."""
        assert self._predicted is not None
        self._learner.learn(self._predicted)

    @property
    def num_bytes(self) -> int:
        """Of the model."""
        return self._learner.model().embedding_bytes


def bytes_of_a_quarter(users: Int64s, items: Int64s) -> int:
    """A quarter of what a table of all ids takes: what each scheme may have."""
    return (len(np.unique(users)) + len(np.unique(items))) * DIM


FOREVER = math.inf
