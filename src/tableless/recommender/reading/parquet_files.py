"""Parquet files: their rows, some at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl

from ..interactions import DataError
from .columns import Columns
from .file_formats import Place, one_line_errors, scan_parquet

_BATCH_ROWS = 1 << 20


def read_parquet(
    file: Path, columns: Columns, *, rows: tuple[int, int] | None = None
) -> Iterator[tuple[pl.DataFrame, Place]]:
    """The columns wanted, named by their roles; of all rows, or of the first of `rows` to before the last."""
    first, last = rows or (0, count_rows(file))
    with one_line_errors(file):
        selected = scan_parquet(file).select(pl.col(name).alias(role) for role, name in columns.by_role.items())
        for frame in selected.slice(first, last - first).collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True):
            yield frame, partial(_place, file, first)
            first += len(frame)
    if first != last:  # polars ends early, and says nothing, where a page cannot be decoded
        raise DataError(f"{file} is damaged: its rows from {first + 1} to {last} cannot be read")


def count_rows(file: Path) -> int:
    """How many rows it has; a file that is not parquet is refused."""
    with open(file, "rb") as opened:
        if opened.read(4) != b"PAR1":
            raise DataError(f"{file} is not parquet, and only parquet can be streamed; write it as parquet first")
    with one_line_errors(file):
        return int(scan_parquet(file).select(pl.len()).collect().item())


def _place(file: Path, before: int, row: int) -> str:
    return f"{file}, row {before + row + 1}"
