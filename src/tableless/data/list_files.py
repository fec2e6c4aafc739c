"""Lists of ids as parquet files: what a run directory keeps of its users and items."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..extras import install_hint
from ..files.whole import replacing
from .interactions import DataError

if TYPE_CHECKING:
    import polars as pl


def write_list(frame: pl.DataFrame, path: Path) -> None:
    """A frame as a parquet file, which appears whole or not at all."""
    import polars as pl

    with replacing(path) as part:
        try:
            frame.write_parquet(part)
        except pl.exceptions.PolarsError as error:  # a full disk, for instance
            raise OSError(f"{path} could not be written: {error}") from None


def read_list_file(path: Path, *, columns: tuple[str, ...]) -> pl.DataFrame:
    """A parquet file that has at least these columns. It may come from anyone, and is checked."""
    try:
        import pyarrow.parquet as pq
    except ImportError as missing:
        raise ImportError(f"the items of a run are read by {missing.name}: {install_hint('data')}") from missing
    from .reading.parquet import to_frame
    from .reading.values import one_line_errors

    with one_line_errors(path):  # by pyarrow, because a file made to harm can end a process that reads it by polars
        frame = to_frame(pq.read_table(path, partitioning=None))
    for column in columns:
        if column not in frame.columns:
            raise DataError(f"{path} has no column {column!r}; it is not what `tableless train` wrote")
    return frame
