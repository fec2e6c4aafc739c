"""Interactions: who did what, as flat arrays that may lie on disk, and the ways of splitting them."""

from __future__ import annotations

import json
import mmap
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

Kind = Literal["integer", "string"]
# Told what happens, and how much of how much of it is done (None: not known; a mere remark has neither).
Report = Callable[[str, int | None, int | None], None]

# Whole users are handled together, about this many actions at a time, so that memory does not grow with the data.
_BLOCK_ROWS = 1 << 22
_FORMAT = 1


class DataError(ValueError):
    """The data cannot be used as it is; the message is one line that says where and what to do."""


@dataclass(frozen=True)
class Interactions:
    """Who did what. Users and items are numbered by row; each user's actions stand together, in time order.

    Ids ascend with the row (`np.searchsorted` finds a row), except in a `split_global_time`, where they ascend among
    the known rows and again among the new ones.
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
        """Users, those without any action (new ones, in a split) included."""
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        """Items, those without any action included."""
        return len(self.item_ids)

    @property
    def num_actions(self) -> int:
        """Actions of all users together."""
        return len(self.items)

    def user_rows(self) -> NDArray[np.int32]:
        """The user row of each action: int32 [num_actions]."""
        return np.repeat(np.arange(self.num_users, dtype=np.int32), np.diff(self.starts))

    def in_memory(self) -> Interactions:
        """The same, with arrays that need no file any more."""
        times = None if self.times is None else np.array(self.times)
        user_ids, item_ids = np.array(self.user_ids), np.array(self.item_ids)
        starts, items = np.array(self.starts), np.array(self.items)
        return replace(self, user_ids=user_ids, item_ids=item_ids, starts=starts, items=items, times=times)

    def save(self, directory: Path | str) -> None:
        """Write a directory for `load`; it appears under its name only when it is complete."""
        with staged(Path(directory)) as staging:
            for name, array in self._arrays().items():
                np.save(staging / f"{name}.npy", array, allow_pickle=False)
            _write_items(staging, self.item_ids, self.item_names)
            _write_description(staging, self.user_kind, self.item_kind)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {"user_ids": self.user_ids, "starts": self.starts, "items": self.items}
        return arrays if self.times is None else arrays | {"times": self.times}

    @classmethod
    def load(cls, directory: Path | str, *, mmap: bool = True) -> Interactions:
        """Read what `save` wrote; with `mmap`, the arrays stay on disk until they are touched."""
        directory = Path(directory)
        description = _read_description(directory)

        def array(name: str) -> NDArray[Any]:
            return _load_array(directory / f"{name}.npy", mapped=mmap)

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


class InteractionsWriter:
    """Interactions built from whole users, some at a time: in `directory`, so that no array has to fit in memory, or,
    without one, in memory.
    """

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
        if self._directory is not None:
            _write_items(self._directory, item_ids, item_names)
            _write_description(self._directory, user_kind, item_kind)
        return Interactions(
            user_ids=self._user_ids.finish(),
            item_ids=item_ids,
            starts=self._starts.finish(),
            items=self._items.finish(),
            times=None if self._times is None else self._times.finish(),
            item_names=item_names,
            user_kind=user_kind,
            item_kind=item_kind,
        )


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
        return _load_array(self._path, mapped=True)

    def _write_header(self, file: BinaryIO) -> None:
        # numpy pads the header so that the length may grow in place.
        descr = np.lib.format.dtype_to_descr(self._dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self._length,)}
        np.lib.format.write_array_header_1_0(file, header)


def _load_array(path: Path, *, mapped: bool) -> NDArray[Any]:
    # Copy-on-write: torch warns about arrays that it could not write to, and the file still cannot change.
    array: NDArray[Any] = np.load(path, mmap_mode="c" if mapped else None, allow_pickle=False)
    return array


@contextmanager
def staged(directory: Path) -> Iterator[Path]:
    """A directory to write in, which takes the name `directory` only if everything went well, and else disappears."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(directory.parent)
    staging = directory.parent / f".{directory.name}.{uuid.uuid4().hex}.partial"
    staging.mkdir()
    try:
        yield staging
        if directory.exists():
            directory.rename(directory.parent / f"{staging.name}.old.partial")
        staging.rename(directory)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        shutil.rmtree(directory.parent / f"{staging.name}.old.partial", ignore_errors=True)


def remove_abandoned(parent: Path) -> None:
    """Remove what a killed process left in `parent`: a live one touches its files all the time."""
    an_hour_ago = time.time() - 3600
    for left in parent.glob(".*.partial"):
        try:
            if max(path.stat().st_mtime for path in (left, *left.rglob("*"))) < an_hour_ago:
                shutil.rmtree(left, ignore_errors=True)
        except FileNotFoundError:  # its owner has just finished
            continue


def _write_items(directory: Path, item_ids: NDArray[np.int64], names: pl.Series | None) -> None:
    np.save(directory / "item_ids.npy", item_ids, allow_pickle=False)
    if names is not None:
        names.alias("name").to_frame().write_parquet(directory / "item_names.parquet")


def _read_names(directory: Path) -> pl.Series | None:
    path = directory / "item_names.parquet"
    if not path.exists():
        return None
    try:
        import polars as pl
    except ImportError as missing:
        raise ImportError("the names of items are read by polars: pip install 'tableless[data]'") from missing
    return pl.read_parquet(path, columns=["name"])["name"]


def _write_description(directory: Path, user_kind: Kind, item_kind: Kind) -> None:
    description = {"format": _FORMAT, "user_kind": user_kind, "item_kind": item_kind}
    (directory / "interactions.json").write_text(json.dumps(description) + "\n")


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
class Split:
    """Training actions, and one held-out action per user for validation and test.

    `train` has the rows of the whole (a new user has no actions in it) but not its times, which nothing needs any
    more. A held-out item never occurs among the training actions of its user.
    """

    train: Interactions
    validation_users: NDArray[np.int32]
    validation_items: NDArray[np.int32]
    test_users: NDArray[np.int32]
    test_items: NDArray[np.int32]
    num_known_users: int  # rows below this occur in training, the others are new at test time
    num_known_items: int


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
    for block in _user_blocks(interactions):
        kept = block.take(users[block.users] & items[block.items])
        kept_users = users[block.first : block.last]
        writer.append(
            interactions.user_ids[block.first : block.last][kept_users],
            kept.counts()[kept_users],
            items=new_row[kept.items],
            times=kept.times,
        )
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
        for block in _user_blocks(interactions):
            kept = block.take(users[block.users] & items[block.items])
            user_counts[block.first : block.last] = kept.counts()
            item_counts += np.bincount(kept.items, minlength=interactions.num_items)
        stable = np.array_equal(users, user_counts >= core) and np.array_equal(items, item_counts >= core)
        users, items = user_counts >= core, item_counts >= core
        if stable:
            return users, items


def split_leave_one_out(interactions: Interactions, *, seed: int = 0) -> Split:
    """Each user's last action is test, the one before validation, the rest training (appendix B.1 of the paper).

    Users with fewer than three actions stay in training entirely. If a user has an item several times, only the last
    of these actions counts: else the held-out item could be known from training, and "items the user never touched"
    would not be defined. Without times, which two actions are held out is a random choice made by `seed`.
    """
    generator = np.random.default_rng(seed)
    split = _SplitWriter(interactions)
    for block in _user_blocks(interactions):
        distinct = block.take(_one_of_each_pair(block, interactions.num_items, which="last"))
        counts = distinct.counts()
        ends = np.cumsum(counts)
        if interactions.times is None:
            draws = generator.random((len(counts), 2))
            test = ends - counts + (draws[:, 0] * counts).astype(np.int64)
            validation = ends - counts + (draws[:, 1] * (counts - 1)).astype(np.int64)
            validation += validation >= test  # any action but the test action, each as likely
        else:
            test, validation = ends - 1, ends - 2
        enough = counts >= 3
        part = np.zeros(len(distinct.items), np.int8)
        part[validation[enough]] = 1
        part[test[enough]] = 2
        split.append(distinct, train=part == 0, validation=part == 1, test=part == 2)
    return split.finish()


def split_global_time(interactions: Interactions, *, validation_share: float = 0.1, test_share: float = 0.1) -> Split:
    """By time over all users: the last `test_share` of the actions are test, those before them validation.

    Whole users and items are then new at test time; rows are renumbered so that those known from training come first.
    Held out is each user's first action in a period. If a user has an item several times, only the first of these
    actions counts: a repetition is nothing to predict. Actions of one time stay together, in the later period.
    """
    if interactions.times is None:
        raise DataError("a split by time needs times, and this data has none; name a time column, or leave one out")
    if not (validation_share > 0 and test_share > 0 and validation_share + test_share < 1):
        raise DataError(
            f"validation_share {validation_share} and test_share {test_share} must be above 0, and below 1 together"
        )
    test_from = _time_of_last(interactions.times, test_share)
    validation_from = _time_of_last(interactions.times, validation_share, before=test_from)
    split = _SplitWriter(interactions)
    for block in _user_blocks(interactions):
        distinct = block.take(_one_of_each_pair(block, interactions.num_items, which="first"))
        assert distinct.times is not None
        period = (distinct.times >= validation_from).astype(np.int8) + (distinct.times >= test_from)
        split.append(
            distinct,
            train=period == 0,
            validation=_first_of_each_user(distinct, period == 1),
            test=_first_of_each_user(distinct, period == 2),
        )
    result = split.finish()
    if not result.train.num_actions:
        raise DataError("nothing is left for training: too many of the actions have the same time")
    for part, users in (("validation", result.validation_users), ("test", result.test_users)):
        if not len(users):
            raise DataError(f"no user has an item in the {part} period that is new to them; take a larger share")
    return _known_first(result)


def _known_first(split: Split) -> Split:
    train = split.train
    counts = np.diff(train.starts)
    known_users = counts > 0
    known_items = np.zeros(train.num_items, np.bool_)
    known_items[train.items] = True
    users, user_row = _order_first(known_users)
    items, item_row = _order_first(known_items)
    for start in range(0, train.num_actions, _BLOCK_ROWS):  # in place: the array is the split's own
        train.items[start : start + _BLOCK_ROWS] = item_row[train.items[start : start + _BLOCK_ROWS]]
    return Split(
        train=replace(
            train,
            user_ids=train.user_ids[users],
            item_ids=train.item_ids[items],
            starts=_starts_of(counts[users]),  # the actions stay where they are: only users without any moved
            item_names=None if train.item_names is None else train.item_names.gather(items),
        ),
        validation_users=user_row[split.validation_users],
        validation_items=item_row[split.validation_items],
        test_users=user_row[split.test_users],
        test_items=item_row[split.test_items],
        num_known_users=int(known_users.sum()),
        num_known_items=int(known_items.sum()),
    )


def _order_first(chosen: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The rows with the chosen ones first, and for each row its place in that order."""
    order = np.concatenate([np.flatnonzero(chosen), np.flatnonzero(~chosen)])
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return order, place


@dataclass(frozen=True)
class _Block:
    """The actions of user rows first..last-1."""

    first: int
    last: int
    users: NDArray[np.int32]  # [rows] user row of each action
    items: NDArray[np.int32]  # [rows]
    times: NDArray[np.int64] | None  # [rows]

    def take(self, keep: NDArray[np.bool_]) -> _Block:
        times = None if self.times is None else self.times[keep]
        return replace(self, users=self.users[keep], items=self.items[keep], times=times)

    def counts(self) -> NDArray[np.int64]:
        """Actions per user: [last - first]."""
        return np.bincount(self.users - np.int32(self.first), minlength=self.last - self.first)


def _user_blocks(interactions: Interactions) -> Iterator[_Block]:
    """Whole users, about `_BLOCK_ROWS` actions at a time."""
    starts = interactions.starts
    first = 0
    while first < interactions.num_users:
        last = int(np.searchsorted(starts, starts[first] + _BLOCK_ROWS, side="right")) - 1
        last = max(last, first + 1)
        rows = slice(int(starts[first]), int(starts[last]))
        users = np.repeat(np.arange(first, last, dtype=np.int32), np.diff(starts[first : last + 1]))
        times = None if interactions.times is None else interactions.times[rows]
        yield _Block(first, last, users, interactions.items[rows], times)
        _forget_pages(interactions.items)
        _forget_pages(interactions.times)
        first = last


def _forget_pages(array: NDArray[Any] | None) -> None:
    """Give back the memory of a mapped array that was read: it counts as ours until the system wants it back."""
    mapping = getattr(array, "_mmap", None)
    if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)


class _SplitWriter:
    """Collects the parts of a split, block by block."""

    def __init__(self, interactions: Interactions) -> None:
        self._whole = interactions
        self._counts = np.zeros(interactions.num_users, np.int64)
        # As large as it could become; what is never written takes no memory.
        self._items = np.empty(interactions.num_actions, np.int32)
        self._num_actions = 0
        self._validation: list[_Block] = []
        self._test: list[_Block] = []

    def append(
        self,
        block: _Block,
        *,
        train: NDArray[np.bool_],  # [rows of block]
        validation: NDArray[np.bool_],
        test: NDArray[np.bool_],
    ) -> None:
        training = block.take(train)
        self._counts[block.first : block.last] = training.counts()
        self._items[self._num_actions : self._num_actions + len(training.items)] = training.items
        self._num_actions += len(training.items)
        self._validation.append(block.take(validation))
        self._test.append(block.take(test))

    def finish(self) -> Split:
        train = replace(
            self._whole, starts=_starts_of(self._counts), items=self._items[: self._num_actions], times=None
        )
        return Split(
            train=train,
            validation_users=np.concatenate([block.users for block in self._validation]),
            validation_items=np.concatenate([block.items for block in self._validation]),
            test_users=np.concatenate([block.users for block in self._test]),
            test_items=np.concatenate([block.items for block in self._test]),
            num_known_users=train.num_users,
            num_known_items=train.num_items,
        )


def _starts_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def _one_of_each_pair(block: _Block, num_items: int, *, which: Literal["first", "last"]) -> NDArray[np.bool_]:
    """Marks the first or last action of each user with each item: [rows]."""
    pair = (block.users - np.int32(block.first)).astype(np.int64) * num_items + block.items
    order = np.argsort(pair, kind="stable")
    differs = np.diff(pair[order]) != 0  # from the one before, or after
    chosen = np.concatenate([[True], differs] if which == "first" else [differs, [True]])
    marks = np.zeros(len(pair), np.bool_)
    marks[order[chosen[: len(order)]]] = True
    return marks


def _first_of_each_user(block: _Block, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    rows = np.flatnonzero(among)
    users = block.users[rows]
    marks = np.zeros(len(among), np.bool_)
    marks[rows[:1]] = True
    marks[rows[1:][users[1:] != users[:-1]]] = True
    return marks


def _time_of_last(times: NDArray[np.int64], share: float, *, before: int | None = None) -> int:
    """The latest time from which on (until `before`) at least `share` of all actions happened, or else the first time.

    Found by bisection: a sorted copy of all times would not fit in memory where they do not.
    """
    blocks = [times[start : start + _BLOCK_ROWS] for start in range(0, len(times), _BLOCK_ROWS)]
    low = min(int(block.min()) for block in blocks)
    high = max(int(block.max()) for block in blocks)
    later = 0 if before is None else _count_from(blocks, before)
    wanted = later + max(1, round(share * len(times)))
    while low < high:
        middle = (low + high + 1) // 2
        if _count_from(blocks, middle) >= wanted:
            low = middle
        else:
            high = middle - 1
    _forget_pages(times)
    return low


def _count_from(blocks: list[NDArray[np.int64]], time: int) -> int:
    return sum(int(np.count_nonzero(block >= time)) for block in blocks)
