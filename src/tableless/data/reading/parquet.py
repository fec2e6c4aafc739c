"""Parquet files: their columns, and their rows, some at a time.

They are read by pyarrow, which reports a damaged file as an error. polars is as quick, but a damaged file can end the
process, or give fewer rows than there are without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast, final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ...files.whole import replacing
from ..interactions import DataError, Kind
from .values import Kinds, Layout, Names, Note, RowPlace, TimeKind, kind_of_time, one_line_errors

MAGIC = b"PAR1"
"""The first bytes of a parquet file."""

_BATCH_ROWS = 1 << 20
_SHOWN_ROWS = 1000


def sniff_parquet(file: Path) -> ParquetLayout:
    """The columns of a parquet file."""
    with one_line_errors(file):
        schema = to_frame(pq.read_schema(file).empty_table()).schema
    return ParquetLayout(path=file, names=tuple(schema.names()), schema=schema)


def to_frame(table: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    """A polars frame of what pyarrow has read. polars does not check that text is UTF-8, so that is done here."""
    table.validate(full=True)
    _decode_names(table.schema)
    return cast(pl.DataFrame, pl.from_arrow(table))


@final
@dataclass(frozen=True, kw_only=True)
class ParquetLayout(Layout):
    """Columns with types."""

    has_types = True
    schema: pl.Schema

    def kinds(self, names: Names) -> Kinds:
        """The columns' types tell; only times that are strings have to be looked at."""
        time = self._kind_of_time(names["time"]) if "time" in names else None
        return Kinds(self._kind_of_id(names["user"]), self._kind_of_id(names["item"]), time)

    def has_dates(self, name: str) -> bool:
        """By its type."""
        return self.schema[name] in (pl.Date, pl.Datetime)

    def read(
        self, names: Names, *, rows: tuple[int, int] | None = None, note: Note | None = None
    ) -> Iterator[tuple[pl.DataFrame, RowPlace]]:
        """Only the row groups that hold any of the `rows` are read."""
        roles = [pl.col(name).alias(role) for role, name in names.items()]
        with one_line_errors(self.path), pq.ParquetFile(self.path) as opened:
            first, last = rows or (0, opened.metadata.num_rows)
            groups, before = _groups(opened, first, last)
            for batch in opened.iter_batches(_BATCH_ROWS, row_groups=groups, columns=list(names.values())):
                skipped = max(0, first - before)
                part = batch.slice(skipped, max(0, min(last - before, len(batch)) - skipped))
                before += len(batch)
                if len(part):
                    yield to_frame(part).select(roles), partial(_place, self.path, first)
                    first += len(part)
        if first != last:
            raise DataError(f"{self.path} is damaged: its rows from {first + 1} to {last} cannot be read")

    def read_whole(self, names: Names) -> pl.DataFrame:
        """All rows at once."""
        with one_line_errors(self.path):
            frame = to_frame(pq.read_table(self.path, columns=list(names.values()), partitioning=None))
        return frame.select(pl.col(name).alias(role) for role, name in names.items())

    def count_rows(self) -> int:
        """As the end of the file says."""
        with one_line_errors(self.path):
            return int(pq.read_metadata(self.path).num_rows)

    def _kind_of_id(self, name: str) -> Kind:
        dtype = self.schema[name]
        if dtype.is_integer() or dtype.is_float():  # floats have to be whole numbers, as pandas has them with nulls
            return "integer"
        if dtype in (pl.String, pl.Binary, pl.Categorical, pl.Enum):
            return "string"
        raise DataError(f"{self.path}: column {name!r} is {dtype}, but ids are integers or strings; cast it first")

    def _kind_of_time(self, name: str) -> TimeKind:
        dtype = self.schema[name]
        if dtype.is_integer():
            return "integer"
        if dtype.is_numeric():
            return "number"
        if dtype in (pl.Date, pl.Datetime):
            return "datetime"
        if dtype == pl.String:
            first = self._first_value(name)
            return "integer" if first is None else kind_of_time(str(first))
        raise DataError(f"{self.path}: column {name!r} is {dtype}, which cannot be a time; give another as time_col")

    def _first_value(self, name: str) -> object:
        """The first value of a column of strings that is not missing; None if there is none."""
        with one_line_errors(self.path), pq.ParquetFile(self.path) as opened:
            for batch in opened.iter_batches(_SHOWN_ROWS, columns=[name]):
                for value in batch.column(0).to_pylist():
                    if value:
                        return value
        return None


def _decode_names(fields: Iterable[pa.Field]) -> None:
    """A UnicodeDecodeError where a name is no text; polars would panic, and print a trace of its own."""
    for field in fields:
        field.name  # noqa: B018 - decoding it is the point
        _decode_names(field.type.field(number) for number in range(field.type.num_fields))


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


def write_list(frame: pl.DataFrame, path: Path) -> None:
    """A frame as a parquet file, which appears whole or not at all."""
    with replacing(path) as part:
        try:
            frame.write_parquet(part)
        except pl.exceptions.PolarsError as error:  # a full disk, for instance
            raise OSError(f"{path} could not be written: {error}") from None


def read_list_file(path: Path, *, columns: tuple[str, ...]) -> pl.DataFrame:
    """A parquet file that has at least these columns. It may come from anyone, and is checked."""
    with one_line_errors(path):  # by pyarrow, because a file made to harm can end a process that reads it by polars
        frame = to_frame(pq.read_table(path, partitioning=None))
    for column in columns:
        if column not in frame.columns:
            raise DataError(f"{path} has no column {column!r}; it is not what `tableless train` wrote")
    return frame
