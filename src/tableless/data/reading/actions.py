"""Actions: the rows of a file as ids, batch by batch, in memory that does not grow with the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..interactions import DataError
from ..sources import find_files
from .columns import Columns
from .parquet_rows import count_rows, read_parquet
from .sniffing import find_layout
from .text_rows import read_text
from .values import Batch, Kinds, first_kinds, to_batch


def read_actions(file: Path, *, columns: Columns, kinds: Kinds) -> Iterator[Batch]:
    """All rows of a file, in order and in bounded memory. Raises `KindsChanged` if text turns out to be of another."""
    layout = find_layout(file, expected=columns.by_role.values())
    frames = read_parquet(file, columns) if layout.format == "parquet" else read_text(layout, columns)
    for frame, place in frames:
        yield to_batch(frame, columns, kinds=kinds, place=place)


def stream_actions(
    path: Path | str, *, columns: Columns, rank: int = 0, world_size: int = 1, batch_size: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Batches of (user ids, item ids) from one rank's share of parquet files: no pass over the data comes first.

    Shares are equal and contiguous ranges of all rows, so that every rank has as many batches as the others, give or
    take one; of the files, only the row groups that hold a rank's share are read. All batches but the last have
    `batch_size` rows.
    """
    if not 0 <= rank < world_size:
        raise DataError(f"rank must be in 0..{world_size - 1}, not {rank}")
    files = find_files(Path(path))
    columns = replace(columns, time=None)
    kinds = first_kinds(files, columns)
    sizes = [count_rows(file) for file in files]
    first, last = sum(sizes) * rank // world_size, sum(sizes) * (rank + 1) // world_size
    users, items = np.empty(0, np.int64), np.empty(0, np.int64)
    for file, size in zip(files, sizes, strict=True):
        rows = (max(first, 0), min(last, size))
        first, last = first - size, last - size
        if rows[0] >= rows[1]:
            continue
        for frame, place in read_parquet(file, columns, rows=rows):
            batch = to_batch(frame, columns, kinds=kinds, place=place)
            users, items = np.concatenate([users, batch.users]), np.concatenate([items, batch.items])
            while len(users) >= batch_size:
                yield users[:batch_size], items[:batch_size]
                users, items = users[batch_size:], items[batch_size:]
    if len(users):
        yield users, items
