"""Interactions: who did what, as flat arrays that may lie on disk.

They are walked in blocks of users, a few million actions at a time, so that memory does not grow with the data.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..files.whole import staged
from ..hints import install_hint

if TYPE_CHECKING:
    import polars as pl

Rows = NDArray[np.int32]
"""Users or items by their rows: their places in the data."""
Kind = Literal["integer", "string"]
Report = Callable[[str, int | None, int | None], None]
"""Is told what happens, how much of it is done, and how much there is; both are None where they are not known."""

_FORMAT = 1
_BLOCK_ROWS = 1 << 22


class Part(IntEnum):
    """What an action is for, where the data says so itself."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2


class DataError(ValueError):
    """The data cannot be used as it is. The message is one line that says where the fault is and what to do."""


@dataclass(frozen=True)
class Interactions:
    """Who did what. Users and items are numbered by row. The actions of a user stand together, in the order of time.

    Ids ascend with the row (`np.searchsorted` finds a row), except in a split with new users or items, where they
    ascend among the known rows and again among the new ones.
    """

    user_ids: NDArray[np.int64]  # [num_users]
    item_ids: NDArray[np.int64]  # [num_items]
    starts: NDArray[np.int64]  # [num_users + 1]: the actions of user row u are items[starts[u]:starts[u + 1]]
    items: NDArray[np.int32]  # [num_actions] item rows
    times: NDArray[np.int64] | None  # [num_actions], in whatever unit the data has; None: the order means nothing
    item_names: pl.Series | None  # [num_items] raw ids; None where they are integers, whose id is their name
    user_kind: Kind
    item_kind: Kind

    @property
    def num_users(self) -> int:
        """All users, also those without any action (the new ones in a split)."""
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        """All items, also those without any action."""
        return len(self.item_ids)

    @property
    def num_actions(self) -> int:
        """Actions of all users together."""
        return len(self.items)

    def user_rows(self) -> NDArray[np.int32]:
        """The user row of each action: int32 [num_actions]."""
        return np.repeat(np.arange(self.num_users, dtype=np.int32), np.diff(self.starts))

    def in_memory(self) -> Interactions:
        """A copy whose arrays need no file."""
        times = None if self.times is None else np.array(self.times)
        user_ids, item_ids = np.array(self.user_ids), np.array(self.item_ids)
        starts, items = np.array(self.starts), np.array(self.items)
        return replace(self, user_ids=user_ids, item_ids=item_ids, starts=starts, items=items, times=times)

    def save(self, directory: Path | str) -> None:
        """Write a directory for `load`; it appears under its name only when it is complete."""
        with staged(Path(directory)) as staging:
            np.save(staging / "user_ids.npy", self.user_ids, allow_pickle=False)
            np.save(staging / "starts.npy", self.starts, allow_pickle=False)
            np.save(staging / "items.npy", self.items, allow_pickle=False)
            if self.times is not None:
                np.save(staging / "times.npy", self.times, allow_pickle=False)
            self.save_all_but_actions(staging)

    def save_all_but_actions(self, directory: Path) -> None:
        """The rest of `save`, after an `InteractionsWriter` has written the users and their actions."""
        np.save(directory / "item_ids.npy", self.item_ids, allow_pickle=False)
        if self.item_names is not None:
            self.item_names.alias("name").to_frame().write_parquet(directory / "item_names.parquet")
        description = {"format": _FORMAT, "user_kind": self.user_kind, "item_kind": self.item_kind}
        (directory / "interactions.json").write_text(json.dumps(description) + "\n")

    @classmethod
    def load(cls, directory: Path | str, *, mmap: bool = True) -> Interactions:
        """Read what `save` wrote; with `mmap`, the arrays stay on disk until they are touched."""
        directory = Path(directory)
        description = _read_description(directory)

        def array(name: str) -> NDArray[Any]:
            return load_array(directory / f"{name}.npy", mmap=mmap)

        return cls(
            user_ids=array("user_ids"),
            item_ids=array("item_ids"),
            starts=array("starts"),
            items=array("items"),
            times=array("times") if (directory / "times.npy").exists() else None,
            item_names=_read_names(directory),
            user_kind=description["user_kind"],
            item_kind=description["item_kind"],
        )


def load_array(path: Path, *, mmap: bool) -> NDArray[Any]:
    """The array of a .npy file."""
    # Copy-on-write: torch warns about arrays that it could not write to, and the file still cannot change.
    array: NDArray[Any] = np.load(path, mmap_mode="c" if mmap else None, allow_pickle=False)
    return array


def _read_names(directory: Path) -> pl.Series | None:
    path = directory / "item_names.parquet"
    if not path.exists():
        return None
    try:
        import polars as pl
    except ImportError as missing:
        raise ImportError(f"the names of items are read by polars: {install_hint('data')}") from missing
    return pl.read_parquet(path, columns=["name"])["name"]


def _read_description(directory: Path) -> dict[str, Any]:
    path = directory / "interactions.json"
    if not path.exists():
        raise DataError(f"{directory} holds no prepared interactions (no {path.name}); prepare the data again")
    description: dict[str, Any] = json.loads(path.read_text())
    if description.get("format") != _FORMAT:
        raise DataError(
            f"{path} has format {description.get('format')}, this version reads {_FORMAT}; prepare it again"
        )
    return description


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
    """Slices that cover an array over all actions, where it does not matter whose actions they are."""
    return (slice(start, start + _BLOCK_ROWS) for start in range(0, num_rows, _BLOCK_ROWS))


def forget_pages(array: NDArray[Any] | None) -> None:
    """Give back the memory of a mapped array. What was read of it counts as ours until the system needs the memory."""
    mapping = getattr(array, "_mmap", None)
    if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)
