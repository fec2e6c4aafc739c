"""One side of a model that learns from a stream: rows for the ids of the moment, and a network for all others."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..embedding.deep_hash import DeepHashEmbedding, network_arguments
from ..embedding.hashing import HashFamily, derive_seed
from ..embedding.head_and_tail import HeadAndTail
from ..embedding.rounded_matrix import values_of
from ..kernels import Floats, Int64s

WAYS = 8
"""Slots that an id may be in."""
_HANDED_BACK = 4096  # evicted rows that the network still learns
_AT_A_TIME = 256  # of them in a step


class LookedUp(NamedTuple):
    """Some distinct ids of a batch, and what is learned of them: the arrays are changed in place."""

    ids: Int64s
    vectors: Floats  # [ids, dim]
    squares: Floats  # [ids, …]: AdaGrad's sums
    slots: Int64s  # rows, or -1


class StreamSide:
    """LookedUp of users or of items, with bounded memory.

    `constant` is the last number of all vectors if it is not to be learned: users have a 1 there, so that the last
    number of an item is a bias of its own.
    """

    def __init__(
        self, network: DeepHashEmbedding, *, num_rows: int, constant: float | None, rate: float, slowness: float
    ) -> None:
        dim, seed = network.embedding_dim, network.seed
        network.expect_training_from_nothing()
        self.network = network
        with torch.no_grad():  # a target that is always met leaves these weights as they are
            weight, bias = network.output_layer
            weight[-1] = 0.0
            bias[-1] = constant or 0.0
        self.slow = copy.deepcopy(network).requires_grad_(False)
        self.slowness = slowness
        self.constant = constant
        self.adam = torch.optim.Adam(network.parameters(), rate)
        num_sets = max(1, num_rows // WAYS)
        self._sets = HashFamily(1, num_sets, derive_seed(seed, "rows"), mixed=True)
        size = num_sets * WAYS
        self.held, self.uses = np.zeros(size, np.int64), np.zeros(size, np.float32)  # a use of 0: the slot is free
        self.rows = np.zeros((size, dim), np.float32)
        self.squares = np.zeros((size, 2), np.float32)
        self.lost_ids, self.lost_rows = np.zeros(0, np.int64), np.zeros((0, dim), np.float32)
        self.evictions = 0

    def look_up(self, ids: Int64s) -> LookedUp:
        """The vectors of distinct ids: rows as far as there are any."""
        from ..kernels import stream_loops as loops

        slots = np.empty(len(ids), np.int64)
        loops.find_slots(ids, self._firsts(ids), self.held, self.uses, WAYS, slots)
        vectors, squares = self.rows[slots], self.squares[slots]
        rest = np.flatnonzero(slots < 0)
        if len(rest):
            vectors[rest] = _computed(self.network, ids[rest])
            squares[rest] = 0
        return LookedUp(ids, vectors, squares, slots)

    def keep(self, learned: LookedUp, acting: NDArray[np.bool_], counts: Floats) -> tuple[Int64s, Floats]:
        """Keep what a batch has taught, as far as there are rows.

        Ids that are `acting` now may get a row of an id with a lower count (`counts` [ids]). Returns the ids that have
        no row, and what the network should say of them.
        """
        from ..kernels import stream_loops as loops

        ids, slots = learned.ids, learned.slots.copy()
        evicted = np.empty(len(ids), np.int64)
        lost = loops.admit_rows(acting, counts, self._firsts(ids), self.uses, WAYS, slots, evicted)
        if lost:
            gone = evicted[evicted >= 0]
            self.evictions += lost
            self.lost_ids = np.concatenate([self.held[gone], self.lost_ids])[:_HANDED_BACK]
            self.lost_rows = np.concatenate([self.rows[gone], self.lost_rows])[:_HANDED_BACK]
        has_row = slots >= 0
        own = slots[has_row]
        self.held[own], self.rows[own] = ids[has_row], learned.vectors[has_row]
        self.squares[own] = learned.squares[has_row]
        return ids[~has_row], learned.vectors[~has_row]

    def divide_uses(self, by: float) -> None:
        """Counts got another unit."""
        self.uses /= np.float32(by)

    def teach(self, ids: Int64s, vectors: Floats, replayed: Int64s, random: np.random.Generator) -> None:
        """A step of the network: to the vectors given, to evicted rows, and to what the slow copy says of others."""
        targets: list[tuple[Int64s, Floats]] = [(ids, vectors), (replayed, _computed(self.slow, replayed))]
        if len(self.lost_ids):
            some = random.integers(0, len(self.lost_ids), _AT_A_TIME)
            targets.append((self.lost_ids[some], self.lost_rows[some]))
        all_ids = torch.from_numpy(np.concatenate([own for own, _ in targets]))
        wanted = torch.from_numpy(np.concatenate([own for _, own in targets]))
        if not len(all_ids):
            return
        loss = (_forward(self.network, all_ids) - wanted).square().sum(-1).mean()
        self.adam.zero_grad()
        torch.autograd.backward(loss)
        self.adam.step()
        pairs = zip(self.slow.parameters(), self.network.parameters(), strict=True)
        for slow, fast in pairs:
            slow.lerp_(fast.detach(), 1 - self.slowness)

    def scheme(self) -> HeadAndTail:
        """A copy, in the form that is stored and served."""
        ids, rows = self._all_rows()
        order = np.argsort(ids)
        network = network_arguments(self.network)
        shape: Mapping[str, Any] = {"initial_std": self.network.initial_std, "seed": self.network.seed}
        scheme = HeadAndTail(self.network.embedding_dim, num_frequent=len(order), network=network, **shape)
        scheme.tail.load_state_dict(self.network.state_dict())
        scheme.head.ids.copy_(torch.from_numpy(ids[order]))
        with torch.no_grad():
            values_of(scheme.head.table).copy_(torch.from_numpy(rows[order]))
        return scheme

    def _all_rows(self) -> tuple[Int64s, Floats]:
        """Ids and rows, of which there are always as many, so that the config of a run never changes.

        A free slot gets an id that nobody has a row for, and what the network says of it. So it changes no answer.
        """
        ids, rows, free = self.held.copy(), self.rows.copy(), np.flatnonzero(self.uses == 0)
        if len(free):
            others = np.arange(len(ids)) + np.iinfo(np.int64).min
            ids[free] = np.setdiff1d(others, self.held[self.uses > 0])[: len(free)]
            rows[free] = _computed(self.network, ids[free])
        return ids, rows

    def _firsts(self, ids: Int64s) -> Int64s:
        """The first slot of each id."""
        return self._sets(torch.from_numpy(ids))[:, 0].numpy() * WAYS


def _forward(network: DeepHashEmbedding, ids: Tensor) -> Tensor:
    """Without the search for repeated ids, because these are distinct."""
    return network.decoder(network.encoder(ids))


@torch.no_grad()
def _computed(network: DeepHashEmbedding, ids: Int64s) -> Floats:
    return _forward(network, torch.from_numpy(ids)).numpy()
