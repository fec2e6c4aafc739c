"""Preparing interactions: raw files → compact arrays on disk, in memory that does not grow with the data.

All rows are first written to a spool, in the order of the files. If they are too many to be sorted at once, they are
split into parts by the users' ids. Then each part is sorted and appended to the arrays. All writing is at the end of
files. The spools are files without a name: the system deletes them when the process ends, however it ends.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ..hints import install_hint
from .interactions import DataError, Interactions, Part, Report
from .interactions_writer import InteractionsWriter
from .reading.batches import ActionBatch, dropped_in_words
from .reading.files import ActionFiles
from .reading.values import Kinds, KindsChanged, Note, common_kinds, refuse_open_dates

try:
    import polars as pl
except ImportError as missing:
    raise ImportError(f"interactions are prepared by polars: {install_hint('data')}") from missing

_ROWS_IN_MEMORY = 1 << 22
_CHUNK_ROWS = 1 << 20
_MOST_PARTS = 100  # files that are open at once


def prepare(
    files: ActionFiles,
    *,
    directory: Path,
    test: ActionFiles | None = None,
    rows_in_memory: int = _ROWS_IN_MEMORY,
    report: Report | None = None,
) -> Interactions:
    """The rows of all files, memory-mapped from `directory` (which exists and is empty).

    Where the columns have a part, or `test` has the test actions, the `Part` of each action stands in the place of its
    time. `rows_in_memory` changes how much memory this takes, never the result: rows ascend with the ids, and actions
    of one user at one time stay in the order of the files. `report` is told how far reading is, and what was decided.
    """
    said: set[str] = set()

    def tell(note: str | None) -> None:
        if note is not None and note not in said and report is not None:
            said.add(note)
            report(note, None, None)

    sources = [files] if test is None else [files, test]
    kinds = files.kinds if test is None else common_kinds(files.kinds, test.kinds)
    while True:
        items = _Items(named=kinds.item == "string")
        with _Spool(directory, rows_in_memory) as spool:
            try:
                for batch in _read_all([replace(source, kinds=kinds) for source in sources], report=report, tell=tell):
                    items.add(batch)
                    spool.append(_to_records(batch))
            except KindsChanged as changed:
                kinds = changed.kinds
                tell(changed.note)
                continue
            refuse_open_dates(kinds, f"{files.paths[0]}, column {files.columns.time!r}")
            prepared = _write(_parts(spool, directory, rows_in_memory), items, kinds=kinds, directory=directory)
        if prepared.num_users < 2 or prepared.num_items < 2:
            few = "user" if prepared.num_users < 2 else "item"
            named = files.paths[0] if len(files.paths) == 1 else files.paths[0].parent
            column = files.columns.by_role[few]
            raise DataError(f"{named} has only one {few} (column {column!r}); at least two are needed")
        return prepared


def _read_all(sources: Sequence[ActionFiles], *, report: Report | None, tell: Note) -> Iterator[ActionBatch]:
    """A second source has the test actions; then the parts stand in the place of the times."""
    rows, dropped = 0, Counter[str]()
    for part, source in zip((Part.TRAIN, Part.TEST), sources, strict=False):
        for layout in source.layouts:
            for batch in source.read(layout, note=tell):
                rows += len(batch.users)
                dropped += batch.dropped
                if report is not None:
                    report(f"reading {layout.path.name}", rows, None)
                parts = np.full(len(batch.users), part, np.int64)
                yield batch if len(sources) == 1 else replace(batch, times=parts)
    remarks = dropped_in_words(dropped)
    if not rows:
        first, *others = sources[0].paths
        left = f" left ({', '.join(remarks)})" if remarks else ""
        raise DataError(f"the files of {first.parent} have no rows{left}" if others else f"{first} has no rows{left}")
    for remark in remarks:
        tell(remark)


def _to_records(batch: ActionBatch) -> NDArray[np.int64]:
    """[rows, 2 or 3]: user id, item id and, if there is one, the time; the bits of a float are kept as they are."""
    columns = [batch.users, batch.items]
    if batch.times is not None:
        columns.append(batch.times.view(np.int64))
    return np.stack(columns, axis=1)


def _write(parts: Iterator[NDArray[np.int64]], items: _Items, *, kinds: Kinds, directory: Path) -> Interactions:
    item_ids, item_names = items.finish()
    writer = InteractionsWriter(directory, with_times=kinds.time is not None)
    for records in parts:
        order = _order(records, kinds)
        users = records[order, 0]
        firsts = np.flatnonzero(np.concatenate([[True], users[1:] != users[:-1]]))
        writer.append(
            users[firsts],
            np.diff(firsts, append=len(users)),
            items=_rows_of(records[order, 1], item_ids),
            times=_whole_times(records[order, 2], kinds) if kinds.time else None,
        )
    return writer.finish(item_ids, item_names, user_kind=kinds.user, item_kind=kinds.item)


def _order(records: NDArray[np.int64], kinds: Kinds) -> NDArray[np.int64]:
    """By user, then by time, then as they came."""
    if kinds.time is None:
        return np.argsort(records[:, 0], kind="stable")
    times = records[:, 2].copy()
    return np.lexsort((times.view(np.float64) if kinds.time == "number" else times, records[:, 0]))


def _rows_of(ids: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.int32]:
    order = np.argsort(ids)  # neighbours are looked up together: random places would miss the processor's cache
    rows = np.empty(len(ids), np.int32)
    rows[order] = np.searchsorted(known, ids[order])
    return rows


def _whole_times(times: NDArray[np.int64], kinds: Kinds) -> NDArray[np.int64]:
    return np.floor(times.view(np.float64)).astype(np.int64) if kinds.time == "number" else times


class _Items:
    """The distinct items seen so far and, if they are strings, their names."""

    def __init__(self, *, named: bool) -> None:
        self._known: list[NDArray[np.int64]] = []  # each sorted, each at least twice as long as the next
        self._names: list[pl.Series] | None = [] if named else None
        self._named_ids: list[NDArray[np.int64]] = []

    def add(self, batch: ActionBatch) -> None:
        ids, example = np.unique(batch.items, return_index=True)
        for known in self._known:
            new = known[np.minimum(np.searchsorted(known, ids), len(known) - 1)] != ids
            ids, example = ids[new], example[new]
        if not len(ids):
            return
        if self._names is not None:
            # Copied one by one: the result of `gather` would hold the memory of the whole batch.
            self._names.append(pl.Series(batch.item_names.gather(example).to_list(), dtype=pl.String))
            self._named_ids.append(ids)
        self._known.append(ids)
        while len(self._known) > 1 and len(self._known[-2]) < 2 * len(self._known[-1]):
            last, before = self._known.pop(), self._known.pop()
            self._known.append(_merged(before, last))

    def finish(self) -> tuple[NDArray[np.int64], pl.Series | None]:
        """All ids ascending, and the name of each."""
        ids = np.sort(np.concatenate(self._known), kind="stable")
        if self._names is None:
            return ids, None
        return ids, pl.concat(self._names).gather(np.argsort(np.concatenate(self._named_ids)))


def _merged(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.sort(np.concatenate([one, other]), kind="stable")  # this kind makes use of the two sorted runs


class _Spool:
    """Records in the order they came: in memory while they are few, then in a file without a name."""

    def __init__(self, directory: Path, rows_in_memory: int) -> None:
        self._directory = directory
        self._rows_in_memory = rows_in_memory
        self._waiting: list[NDArray[np.int64]] = []
        self._file: IO[bytes] | None = None
        self._width = 0
        self.num_rows = 0

    def append(self, records: NDArray[np.int64]) -> None:
        self._waiting.append(records)
        self._width = records.shape[1]
        self.num_rows += len(records)
        if self.num_rows > self._rows_in_memory:
            self._file = self._file or tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115, closed by close()
            for waiting in self._waiting:
                self._file.write(np.ascontiguousarray(waiting).data)
            self._waiting.clear()

    def chunks(self) -> Iterator[NDArray[np.int64]]:
        if self._file is None:
            yield from self._waiting
            return
        self._file.seek(0)
        for start in range(0, self.num_rows, _CHUNK_ROWS):
            chunk = np.empty((min(_CHUNK_ROWS, self.num_rows - start), self._width), np.int64)
            self._file.readinto(chunk.data.cast("B"))  # type: ignore[attr-defined]
            yield chunk

    def close(self) -> None:
        self._waiting.clear()
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> _Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _parts(spool: _Spool, directory: Path, rows_in_memory: int) -> Iterator[NDArray[np.int64]]:
    """The records in parts that fit in memory, each with all the records of its users, users ascending by part."""
    if spool.num_rows <= rows_in_memory:
        yield np.concatenate(list(spool.chunks()))
        return
    bounds = _bounds(spool, rows_in_memory)
    with ExitStack() as stack:
        parts = [stack.enter_context(_Spool(directory, 0)) for _ in range(len(bounds) + 1)]
        for chunk in spool.chunks():
            numbers = np.searchsorted(bounds, chunk[:, 0]).astype(np.uint8)
            edges = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=len(parts)))])
            grouped = chunk[np.argsort(numbers, kind="stable")]
            for number in np.flatnonzero(np.diff(edges)):
                parts[number].append(grouped[edges[number] : edges[number + 1]])
        spool.close()  # its space on disk is wanted for the arrays
        for part in parts:
            if part.num_rows == spool.num_rows:  # (nearly) all rows are of one user, who cannot be divided
                yield np.concatenate(list(part.chunks()))
            elif part.num_rows:
                yield from _parts(part, directory, rows_in_memory)
            part.close()


def _bounds(spool: _Spool, rows_in_memory: int) -> NDArray[np.int64]:
    """User ids that cut the records into parts of about equal size: part k has the users up to bounds[k]."""
    step = max(1, spool.num_rows >> 16)
    # Copied, because a view would keep the whole chunk in memory.
    sample = np.sort(np.concatenate([chunk[::step, 0].copy() for chunk in spool.chunks()]))
    num_parts = min(_MOST_PARTS, 2 + 3 * spool.num_rows // (2 * rows_in_memory))
    users, times_drawn = np.unique(sample[np.arange(1, num_parts) * len(sample) // num_parts], return_counts=True)
    heavy = users[(times_drawn > 1) & (users > np.iinfo(np.int64).min)]  # each gets a part of its own
    return np.union1d(users, heavy - 1)[:_MOST_PARTS]
