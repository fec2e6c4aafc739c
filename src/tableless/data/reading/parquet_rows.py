"""Parquet files: their columns, and their rows, some at a time.

By pyarrow, which takes a damaged file for an error. polars is as quick, but ends the process, or reads fewer rows than
there are and says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from ..interactions import DataError
from .columns import Columns
from .sniffing import Place, one_line_errors, to_frame

_BATCH_ROWS = 1 << 20


def read_parquet(
    file: Path, columns: Columns, *, rows: tuple[int, int] | None = None
) -> Iterator[tuple[pl.DataFrame, Place]]:
    """The columns wanted, named by their roles; of all rows, or of the first of `rows` to before the last."""
    names = list(columns.by_role.values())
    with one_line_errors(file), pq.ParquetFile(file) as opened:
        first, last = rows or (0, opened.metadata.num_rows)
        groups, before = _groups(opened, first, last)
        for batch in opened.iter_batches(_BATCH_ROWS, row_groups=groups, columns=names):
            skipped = max(0, first - before)
            part = batch.slice(skipped, max(0, min(last - before, len(batch)) - skipped))
            before += len(batch)
            if len(part):
                roles = [pl.col(name).alias(role) for role, name in columns.by_role.items()]
                yield to_frame(part).select(roles), partial(_place, file, first)
                first += len(part)
    if first != last:
        raise DataError(f"{file} is damaged: its rows from {first + 1} to {last} cannot be read")


def count_rows(file: Path) -> int:
    """How many rows it has; a file that is not parquet is refused."""
    with open(file, "rb") as opened:
        if opened.read(4) != b"PAR1":
            raise DataError(f"{file} is not parquet, and only parquet can be streamed; write it as parquet first")
    with one_line_errors(file):
        return int(pq.read_metadata(file).num_rows)


def first_value(file: Path, name: str) -> object:
    """What stands in the first row of a column; None if there is no row."""
    with one_line_errors(file), pq.ParquetFile(file) as opened:
        for batch in opened.iter_batches(1, columns=[name]):
            return batch.column(0)[0].as_py()
    return None


def _groups(opened: pq.ParquetFile, first: int, last: int) -> tuple[list[int], int]:
    """The row groups that hold any of the rows, and how many rows there are before them."""
    groups: list[int] = []
    start = before = 0
    for group in range(opened.metadata.num_row_groups):
        stop = start + opened.metadata.row_group(group).num_rows
        if start < last and stop > first:
            before = before if groups else start
            groups.append(group)
        start = stop
    return groups, before


def _place(file: Path, before: int, row: int) -> str:
    return f"{file}, row {before + row + 1}"
