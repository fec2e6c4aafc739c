"""Files of actions: one look decides what they are, which columns are meant and what these hold.

The format is told by the content and not by the file's name. To add one: write a module with its `Layout`, and
recognise it in `_recognise`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..config import RowRules
from ..interactions import DataError
from .batches import ActionBatch, to_batch
from .columns import Columns, choose_columns, unused_columns
from .parquet import MAGIC, sniff_parquet
from .text import read_beginning
from .text_formats import sniff_json, sniff_separated
from .values import Kinds, Layout, Note, kind_by_format


@dataclass(frozen=True)
class ActionFiles:
    """Files that are read alike, and all that was decided about them: whoever reads them or reports on them asks here.

    The kinds of parquet are certain. Those of text are as in its first row: see `KindsChanged`.
    """

    layouts: tuple[Layout, ...]  # one for each file
    columns: Columns
    kinds: Kinds
    rules: RowRules
    remarks: tuple[str, ...]  # about columns that are not used

    def __str__(self) -> str:
        """What a user is told about the decisions."""
        return f"{self.layouts[0].path}: {self.columns}"

    @property
    def paths(self) -> list[Path]:
        """Where the files are."""
        return [layout.path for layout in self.layouts]

    def read(self, layout: Layout, *, note: Note | None = None) -> Iterator[ActionBatch]:
        """All rows of one of the files, in order and in bounded memory. Raises `KindsChanged` for text."""
        names = self.columns.by_role
        for frame, place in layout.read(names, note=note):
            yield to_batch(frame, names, kinds=self.kinds, place=place, rules=self.rules)


def find_files(path: Path) -> list[Path]:
    """The file itself, or the parquet files of a directory in the order of their names."""
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if not path.is_dir():
        return [path]
    files = sorted(file for ending in ("*.parquet", "*.pq") for file in path.glob(ending))
    if not files:
        raise DataError(f"{path} is a directory without parquet files; name a file, or put *.parquet files into it")
    return files


def sniff(
    files: Sequence[Path],
    *,
    user_col: str | None = None,
    item_col: str | None = None,
    time_col: str | None = None,
    part_col: str | None = None,
    rules: RowRules = RowRules(),  # noqa: B008 - frozen
) -> ActionFiles:
    """Look at each file once. The columns are those of the first file, and the others must have them too.

    Columns that are not named are guessed. Times are optional; `time_col=""` leaves them out though the file has some.
    Parts are read only from a column that is named, and no times are guessed then. Ratings are read only where the
    rules ask for them.
    """
    named = (user_col, item_col, time_col, part_col, rules.rating_col)
    first = find_layout(files[0], expected=[name for name in named if name])
    columns = choose_columns(
        first, user_col=user_col, item_col=item_col, time_col=time_col, part_col=part_col, rules=rules
    )
    names = columns.by_role
    layouts = (first, *(find_layout(file, expected=names.values()) for file in files[1:]))
    kinds = first.kinds(names)
    for layout in layouts[1:]:
        if layout.has_types and (these := layout.kinds(names)) != kinds:
            raise DataError(
                f"{layout.path} has {these.user} users, {these.item} items and {these.time} times, but the files "
                f"before it {kinds.user}, {kinds.item} and {kinds.time}; a column of ids has one kind"
            )
    if part_col is not None:
        kinds = replace(kinds, time="part")
    elif rules.date_format is not None and columns.time is not None:
        kinds = replace(kinds, time=kind_by_format(rules.date_format))
    wants_time = time_col is None and part_col is None
    return ActionFiles(layouts, columns, kinds, rules, unused_columns(first, columns, wants_time=wants_time))


def find_layout(file: Path, *, expected: Collection[str]) -> Layout:
    """What a file is. `expected` are names of columns that it must have."""
    layout = _recognise(file, expected)
    for name in expected:
        if name not in layout.names:
            raise DataError(f"{file} has no column {name!r}; its columns are {layout.listing}")
    return layout


def _recognise(file: Path, expected: Collection[str]) -> Layout:
    if not file.exists():
        raise DataError(f"{file} does not exist")
    with open(file, "rb") as opened:
        magic = opened.read(4)
    if not magic:
        raise DataError(f"{file} is empty")
    if magic == MAGIC:
        return sniff_parquet(file)
    if magic[:2] == b"PK":
        raise DataError(f"{file} is a zip archive; unpack it and name the file inside")
    gzipped = magic[:2] == b"\x1f\x8b"
    beginning = read_beginning(file, gzipped=gzipped)
    if beginning.startswith(("{", "[")):
        return sniff_json(file, beginning, gzipped=gzipped)
    return sniff_separated(file, beginning, gzipped=gzipped, expected=expected)


def stream_actions(
    files: ActionFiles, *, rank: int = 0, world_size: int = 1, batch_size: int, dropped: Counter[str] | None = None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Batches of (user ids, item ids) from one rank's share of parquet files: no pass over the data comes first.

    Shares are equal and contiguous ranges of all rows, so that every rank has as many batches as the others, give or
    take one and what the rules drop; of the files, only the row groups that hold a rank's share are read. All batches
    but the last have `batch_size` rows. `dropped` counts the rows that the rules drop, by the reason.
    """
    if not 0 <= rank < world_size:
        raise DataError(f"rank must be in 0..{world_size - 1}, not {rank}")
    names = {role: name for role, name in files.columns.by_role.items() if role in ("user", "item", "rating")}
    sizes = [layout.count_rows() for layout in files.layouts]
    first, last = sum(sizes) * rank // world_size, sum(sizes) * (rank + 1) // world_size
    users, items = np.empty(0, np.int64), np.empty(0, np.int64)
    for layout, size in zip(files.layouts, sizes, strict=True):
        rows = (max(first, 0), min(last, size))
        first, last = first - size, last - size
        if rows[0] >= rows[1]:
            continue
        for frame, place in layout.read(names, rows=rows):
            batch = to_batch(frame, names, kinds=files.kinds, place=place, rules=files.rules)
            if dropped is not None:
                dropped.update(batch.dropped)
            users, items = np.concatenate([users, batch.users]), np.concatenate([items, batch.items])
            while len(users) >= batch_size:
                yield users[:batch_size], items[:batch_size]
                users, items = users[batch_size:], items[batch_size:]
    if len(users):
        yield users, items
