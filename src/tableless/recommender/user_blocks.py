"""User blocks: interactions a few million actions at a time, so that memory does not grow with the data."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .interactions import Interactions

_BLOCK_ROWS = 1 << 22


@dataclass(frozen=True)
class UserBlock:
    """Actions of user rows first..last-1."""

    first: int
    last: int
    users: NDArray[np.int32]  # [actions] user row of each
    items: NDArray[np.int32]  # [actions]
    times: NDArray[np.int64] | None  # [actions]

    @property
    def user_rows(self) -> slice:
        """Where these users stand in an array over all users."""
        return slice(self.first, self.last)

    def take(self, keep: NDArray[np.bool_]) -> UserBlock:
        """The same users with some of their actions."""
        times = None if self.times is None else self.times[keep]
        return replace(self, users=self.users[keep], items=self.items[keep], times=times)

    def counts(self) -> NDArray[np.int64]:
        """Actions per user: [last - first]."""
        return np.bincount(self.users - np.int32(self.first), minlength=self.last - self.first)

    def one_of_each_pair(self, num_items: int, *, which: Literal["first", "last"]) -> NDArray[np.bool_]:
        """Marks the first or last action of each user with each item: [actions]."""
        pair = (self.users - np.int32(self.first)).astype(np.int64) * num_items + self.items
        order = np.argsort(pair, kind="stable")
        differs = np.diff(pair[order]) != 0  # from the one before, or after
        chosen = np.concatenate([[True], differs] if which == "first" else [differs, [True]])
        marks = np.zeros(len(pair), np.bool_)
        marks[order[chosen[: len(order)]]] = True
        return marks

    def first_of_each_user(self, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Marks the first action of each user that is marked in `among`: [actions]."""
        rows = np.flatnonzero(among)
        users = self.users[rows]
        marks = np.zeros(len(among), np.bool_)
        marks[rows[:1]] = True
        marks[rows[1:][users[1:] != users[:-1]]] = True
        return marks


def user_blocks(interactions: Interactions) -> Iterator[UserBlock]:
    """All actions in order, whole users together."""
    starts = interactions.starts
    first = 0
    while first < interactions.num_users:
        last = int(np.searchsorted(starts, starts[first] + _BLOCK_ROWS, side="right")) - 1
        last = max(last, first + 1)
        rows = slice(int(starts[first]), int(starts[last]))
        users = np.repeat(np.arange(first, last, dtype=np.int32), np.diff(starts[first : last + 1]))
        times = None if interactions.times is None else interactions.times[rows]
        yield UserBlock(first, last, users, interactions.items[rows], times)
        forget_pages(interactions.items)
        forget_pages(interactions.times)
        first = last


def row_blocks(num_rows: int) -> Iterator[slice]:
    """0..num_rows-1, for an array over all actions, where it does not matter whose they are."""
    return (slice(start, start + _BLOCK_ROWS) for start in range(0, num_rows, _BLOCK_ROWS))


def forget_pages(array: NDArray[Any] | None) -> None:
    """Give back the memory of a mapped array that was read: it counts as ours until the system wants it back."""
    mapping = getattr(array, "_mmap", None)
    if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)
