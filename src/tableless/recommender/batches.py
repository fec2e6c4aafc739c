"""Training batches without per-example Python: a shuffled epoch, cut into slices, with negatives drawn as it goes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Queue
from threading import Thread
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.interactions import Interactions

_MOST_SHUFFLED = 1 << 24

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class SharedNegatives:
    """Items that are drawn once for a whole batch."""

    place: Tensor  # [n] positions in the `items` of the batch
    own: Tensor  # [2, any]: positions in the `users` of the batch who have chosen one of them, and which of the n
    correction: Tensor | None  # [n], to be taken from their scores: how much more often than others each is drawn

    def to(self, device: torch.device) -> SharedNegatives:
        """The same where the model is."""
        correction = None if self.correction is None else self.correction.to(device)
        return SharedNegatives(self.place.to(device), self.own.to(device), correction)


@dataclass(frozen=True)
class Batch:
    """Distinct rows, and which of them each example means."""

    users: Tensor  # [distinct users] rows
    items: Tensor  # [distinct items] rows
    user: Tensor  # [batch] positions in `users`
    item: Tensor  # [batch, 1 + num_negatives] positions in `items`; the first is what the user chose
    weight: Tensor | None  # [batch, 1 + num_negatives]; 0 where a user who chose everything has no negative
    shared: SharedNegatives | None = None  # then an example has no negatives of its own

    def to(self, device: torch.device) -> Batch:
        """The same batch where the model is."""
        weight = None if self.weight is None else self.weight.to(device)
        shared = None if self.shared is None else self.shared.to(device)
        users, items, user, item = (part.to(device) for part in (self.users, self.items, self.user, self.item))
        return Batch(users, items, user, item, weight, shared)


class Batches:
    """Every action of `train` once per epoch, in an order that depends on the seed and the epoch alone.

    Each action has `num_negatives` of its own, which its user did not choose; or the actions of a batch share them all.
    Shared ones are drawn by popularity to the power `by_popularity`, at 0 uniformly; and each at most once. With
    `whole_users` a batch has all actions of some users, about `batch_size` of them.
    """

    def __init__(
        self,
        train: Interactions,
        *,
        batch_size: int,
        num_negatives: int,
        num_items: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        is_shared: bool = False,
        by_popularity: float = 0.0,
        whole_users: bool = False,
    ) -> None:
        from ..kernels import pair_loops

        self.batch_size = batch_size
        self.num_negatives = num_negatives
        self.num_items = num_items
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self._starts = np.asarray(train.starts)
        self._items = np.array(train.items)  # a copy: order in time no longer matters, order by item does
        pair_loops.sort_within_users(self._starts, self._items)
        self._user_marks = _Marks(train.num_users)
        self._item_marks = _Marks(train.num_items)
        self._drawing = _Drawing(self._items, num_items, num_negatives, by_popularity) if is_shared else None
        self._whole_users = whole_users

    def __len__(self) -> int:
        return max(1, -(-len(self._items) // self.batch_size))

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch; under several ranks, this rank's share of each."""
        from ..kernels import pair_loops

        for index, chosen in enumerate(self._chosen(np.random.default_rng([self.seed, number]))):
            # Every rank draws the whole batch and keeps its share, so that all see the same global batch.
            users = (np.searchsorted(self._starts, chosen, side="right") - 1).astype(np.int32)
            share = slice(self.rank, None, self.world_size)
            if self._drawing is not None:
                shared = self._drawing.draw(np.random.default_rng([self.seed, number, index]))
                yield self._assemble_shared(users[share], self._items[chosen][share], shared)
                continue
            items = np.empty((len(chosen), 1 + self.num_negatives), np.int32)
            items[:, 0] = self._items[chosen]
            draw = np.random.SeedSequence([self.seed, number, index]).generate_state(1, np.uint64)[0] >> np.uint64(1)
            pair_loops.sample_negatives(users, self._starts, self._items, self.num_items, int(draw), items[:, 1:])
            yield self._assemble(users[share], items[share])

    def _chosen(self, random: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """Which actions each batch of an epoch has."""
        if not self._whole_users:
            order = _Order(len(self._items), random)
            for index in range(len(self)):
                yield order.between(index * self.batch_size, (index + 1) * self.batch_size)
            return
        counts = np.diff(self._starts)
        for users in np.array_split(random.permutation(len(counts)), len(self)):
            first, count = self._starts[users], counts[users]
            place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)  # of an action among its user's
            yield np.repeat(first, count) + place

    def _assemble(self, users: NDArray[np.int32], items: NDArray[np.int32]) -> Batch:
        missing = items < 0
        weight = None
        if missing.any():
            weight = torch.from_numpy((~missing).astype(np.float32))
            items = np.where(missing, items[:, :1], items)
        distinct_users, user = self._user_marks.distinct(users)
        distinct_items, item = self._item_marks.distinct(items)
        return Batch(distinct_users, distinct_items, user, item, weight)

    def _assemble_shared(self, users: NDArray[np.int32], chosen: NDArray[np.int32], shared: NDArray[np.int32]) -> Batch:
        from ..kernels import action_loops

        assert self._drawing is not None
        distinct_users, user = self._user_marks.distinct(users)
        column, rows = self._drawing.column, distinct_users.numpy()
        column[shared] = np.arange(len(shared), dtype=np.int32)
        own = np.empty((2, action_loops.count_own(rows, self._starts, self._items, column)), np.int64)
        action_loops.own_pairs(rows, self._starts, self._items, column, own)
        column[shared] = -1
        distinct_items, place = self._item_marks.distinct(np.concatenate([chosen, shared]))
        negatives = SharedNegatives(place[len(chosen) :], torch.from_numpy(own), self._drawing.correction(shared))
        return Batch(distinct_users, distinct_items, user, place[: len(chosen), None], None, negatives)


class _Drawing:
    """How items are drawn that a batch shares."""

    def __init__(self, items: NDArray[np.int32], num_items: int, count: int, by_popularity: float) -> None:
        self._num_items, self._count = num_items, count
        self.column = np.full(max(num_items, 1 + int(items.max(initial=0))), -1, np.int32)
        self._upto: NDArray[np.float64] | None = None
        if by_popularity:
            share = (np.bincount(items, minlength=num_items)[:num_items] + 1.0) ** by_popularity
            self._upto = np.cumsum(share / share.sum())
            # The probability that an item is among the draws, beside that of uniform draws.
            self._more = np.log(-np.expm1(count * np.log1p(-share / share.sum()))) - np.log(count / num_items)

    def draw(self, random: np.random.Generator) -> NDArray[np.int32]:
        """Distinct items: all of them if there are no more, else as many as were drawn, less those drawn twice."""
        if self._num_items <= self._count:
            return np.arange(self._num_items, dtype=np.int32)
        if self._upto is None:
            return np.unique(random.integers(0, self._num_items, self._count, dtype=np.int32))
        drawn = np.searchsorted(self._upto, random.random(self._count)).clip(max=self._num_items - 1)
        return np.unique(drawn.astype(np.int32))

    def correction(self, drawn: NDArray[np.int32]) -> Tensor | None:
        """What is to be taken from the scores of these, so that it does not matter how often each is drawn."""
        if self._upto is None or self._num_items <= self._count:
            return None
        return torch.from_numpy(self._more[drawn].astype(np.float32))


def prefetch(items: Iterator[_Item], depth: int = 4) -> Iterator[_Item]:
    """The same items, of which the next few are prepared in another thread: sampling runs outside Python's lock."""
    queue: Queue[_Item | BaseException | None] = Queue(depth)
    abandoned = False

    def fill() -> None:
        try:
            for item in items:
                if abandoned:
                    return
                queue.put(item)
            queue.put(None)
        except BaseException as error:
            queue.put(error)

    worker = Thread(target=fill, daemon=True)
    worker.start()
    try:
        while (item := queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        abandoned = True
        while worker.is_alive():  # it may be waiting for room
            while not queue.empty():
                queue.get_nowait()
            worker.join(0.01)


class _Order:
    """The numbers below `count` in a random order.

    Shuffled while that is cheap. A permutation of a hundred million would take 400 MB, so beyond `_MOST_SHUFFLED` they
    are visited with a random stride that has no factor in common with their number: every batch is then spread evenly
    over all the data, which is what shuffling is for.
    """

    def __init__(self, count: int, random: np.random.Generator) -> None:
        self._count = count
        self._shuffled: NDArray[np.int32] | None = None
        if count <= _MOST_SHUFFLED:
            self._shuffled = np.arange(count, dtype=np.int32)
            random.shuffle(self._shuffled)
            return
        self._start = int(random.integers(count))
        self._stride = int(random.integers(count // 4, count // 2))
        while math.gcd(self._stride, count) > 1:
            self._stride += 1

    def between(self, first: int, last: int) -> NDArray[np.int64]:
        """The numbers at the places `first` to `last` - 1."""
        last = min(last, self._count)
        if self._shuffled is not None:
            return self._shuffled[first:last].astype(np.int64)
        return (self._start + np.arange(first, last) * self._stride) % self._count


class _Marks:
    """Distinct values of a batch in one pass: rows are small integers, so a mark per row replaces sorting."""

    def __init__(self, num_rows: int) -> None:
        self._batch = 0
        self._last_batch = np.full(num_rows, -1, np.int32)
        self._position = np.empty(num_rows, np.int32)

    def distinct(self, rows: NDArray[np.int32]) -> tuple[Tensor, Tensor]:
        """The distinct rows, and the position of each of `rows` among them."""
        from ..kernels import pair_loops

        flat = np.ascontiguousarray(rows).reshape(-1)
        distinct, inverse = np.empty(len(flat), np.int64), np.empty(len(flat), np.int64)
        count = pair_loops.mark_distinct(flat, self._batch, self._last_batch, self._position, distinct, inverse)
        self._batch += 1
        return torch.from_numpy(distinct[:count].copy()), torch.from_numpy(inverse.reshape(rows.shape))
