"""InteractionsWriter: interactions built from whole users, some at a time, so that no array has to fit in memory.

`keep_core` writes those of users and items with enough actions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .interactions import DataError, Interactions, Kind, load_array, user_blocks

if TYPE_CHECKING:
    import polars as pl


class InteractionsWriter:
    """Collects users and their actions: in `directory` (which exists and is empty) or, without one, in memory."""

    def __init__(self, directory: Path | None, *, with_times: bool) -> None:
        self._directory = directory
        self._num_actions = 0
        self._user_ids = _growing_array(directory, "user_ids", np.int64)
        self._starts = _growing_array(directory, "starts", np.int64)
        self._items = _growing_array(directory, "items", np.int32)
        self._times = _growing_array(directory, "times", np.int64) if with_times else None
        self._starts.append(np.zeros(1, np.int64))

    def append(
        self,
        user_ids: NDArray[np.int64],
        counts: NDArray[np.int64],
        *,
        items: NDArray[np.int32],
        times: NDArray[np.int64] | None,
    ) -> None:
        """The next users, how many actions each has, and those actions in order."""
        self._user_ids.append(user_ids)
        self._starts.append(self._num_actions + np.cumsum(counts, dtype=np.int64))
        self._items.append(items)
        if self._times is not None and times is not None:
            self._times.append(times)
        self._num_actions += len(items)

    def finish(
        self, item_ids: NDArray[np.int64], item_names: pl.Series | None, *, user_kind: Kind, item_kind: Kind
    ) -> Interactions:
        """All that was appended; memory-mapped if it lies in a directory."""
        interactions = Interactions(
            user_ids=self._user_ids.finish(),
            item_ids=item_ids,
            starts=self._starts.finish(),
            items=self._items.finish(),
            times=None if self._times is None else self._times.finish(),
            item_names=item_names,
            user_kind=user_kind,
            item_kind=item_kind,
        )
        if self._directory is not None:
            interactions.save_all_but_actions(self._directory)
        return interactions


def keep_core(interactions: Interactions, core: int, *, directory: Path | None = None) -> Interactions:
    """Only users and items with at least `core` actions, repeated until stable, rows renumbered in the same order.

    With a `directory` (which exists and is empty) the result is written there and memory-mapped.
    """
    if core < 0:
        raise DataError(f"core must be 0 (keep everything) or more, not {core}")
    users, items = _core_masks(interactions, core)
    if users.all() and items.all() and directory is None:
        return interactions
    if not users.any():
        raise DataError(f"no user and no item is left with core {core}; take a smaller one")
    new_row = np.cumsum(items, dtype=np.int32) - np.int32(1)
    writer = InteractionsWriter(directory, with_times=interactions.times is not None)
    for block in user_blocks(interactions):
        kept = block.take(users[block.users] & items[block.items])
        kept_users = users[block.user_rows]
        ids, counts = interactions.user_ids[block.user_rows][kept_users], kept.counts()[kept_users]
        writer.append(ids, counts, items=new_row[kept.items], times=kept.times)
    names = interactions.item_names
    return writer.finish(
        interactions.item_ids[items],
        None if names is None else names.gather(np.flatnonzero(items)),
        user_kind=interactions.user_kind,
        item_kind=interactions.item_kind,
    )


def _core_masks(interactions: Interactions, core: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    users = np.ones(interactions.num_users, np.bool_)
    items = np.ones(interactions.num_items, np.bool_)
    while True:
        user_counts = np.zeros(interactions.num_users, np.int64)
        item_counts = np.zeros(interactions.num_items, np.int64)
        for block in user_blocks(interactions):
            kept = block.take(users[block.users] & items[block.items])
            user_counts[block.user_rows] = kept.counts()
            item_counts += np.bincount(kept.items, minlength=interactions.num_items)
        stable = np.array_equal(users, user_counts >= core) and np.array_equal(items, item_counts >= core)
        users, items = user_counts >= core, item_counts >= core
        if stable:
            return users, items


def _growing_array(directory: Path | None, name: str, dtype: type[np.generic]) -> _ArrayInFile | _ArrayInMemory:
    return _ArrayInMemory() if directory is None else _ArrayInFile(directory / f"{name}.npy", np.dtype(dtype))


class _ArrayInMemory:
    def __init__(self) -> None:
        self._parts: list[NDArray[Any]] = []

    def append(self, values: NDArray[Any]) -> None:
        self._parts.append(values)

    def finish(self) -> NDArray[Any]:
        return np.concatenate(self._parts)


class _ArrayInFile:
    """A .npy file that is appended to; its header is written again once the length is known."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._path = path
        self._dtype = dtype
        self._length = 0
        with path.open("wb") as file:
            self._write_header(file)

    def append(self, values: NDArray[Any]) -> None:
        with self._path.open("ab") as file:
            file.write(np.ascontiguousarray(values, self._dtype).data)
        self._length += len(values)

    def finish(self) -> NDArray[Any]:
        with self._path.open("r+b") as file:
            self._write_header(file)
        return load_array(self._path, mmap=True)

    def _write_header(self, file: BinaryIO) -> None:
        # numpy pads the header so that the length may grow in place.
        descr = np.lib.format.dtype_to_descr(self._dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self._length,)}
        np.lib.format.write_array_header_1_0(file, header)
