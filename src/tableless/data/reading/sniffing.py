"""File formats: what a file is, told by its content and not by its name.

Known are parquet, JSON lines, and text with a separator (`,` `;` tab `|` or MovieLens' `::`), with or without a header,
gzipped or not.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ..interactions import DataError

Place = Callable[[int], str]  # where a row of what was read is: file and line

_SEPARATORS = ("::", "\t", ",", ";", "|")
_HEAD_BYTES = 1 << 20
_UNREADABLE = (
    *(pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException),
    *(OSError, EOFError, zlib.error, UnicodeDecodeError),
)


@dataclass(frozen=True)
class Layout:
    """How a file is to be read."""

    path: Path
    format: Literal["parquet", "json", "text"]
    names: tuple[str, ...]  # of all columns
    gzipped: bool = False
    separator: str = ""  # of text
    has_header: bool = False
    first_row: tuple[Any, ...] = ()  # of text and JSON: what stands in each column

    @property
    def quotes(self) -> str | None:
        """The quote character of text; MovieLens has none."""
        return None if self.format == "json" or self.separator == "::" else '"'

    @property
    def listing(self) -> str:
        """The names as a message shows them: on one line, whatever is in them."""
        shown = ", ".join(name if name.isprintable() else repr(name) for name in self.names[:20])
        return shown if len(self.names) <= 20 else f"{shown}, … ({len(self.names)} in all)"


def find_layout(file: Path, *, expected: Collection[str]) -> Layout:
    """`expected` are column names that the file must have; a first line with one of them is a header."""
    layout = _sniff(file, expected)
    for name in expected:
        if name not in layout.names:
            raise DataError(f"{file} has no column {name!r}; its columns are {layout.listing}")
    return layout


def parquet_schema(file: Path) -> pl.Schema:
    """The columns of a parquet file."""
    with one_line_errors(file):
        return to_frame(pq.read_schema(file).empty_table()).schema


def to_frame(table: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    """What pyarrow has read, for polars, which trusts it: so that text is text is made sure of first."""
    table.validate(full=True)
    _decode_names(table.schema)
    return cast(pl.DataFrame, pl.from_arrow(table))


def _decode_names(fields: Iterable[pa.Field]) -> None:
    """A UnicodeDecodeError where a name is no text; polars would panic, with a trace of its own for the user."""
    for field in fields:
        field.name  # noqa: B018 - decoding it is the point
        _decode_names(field.type.field(number) for number in range(field.type.num_fields))


def open_text(file: Path, *, gzipped: bool) -> BinaryIO:
    """The bytes of a file, unpacked if it is gzipped."""
    return cast(BinaryIO, gzip.open(file, "rb") if gzipped else file.open("rb"))


def split_rows(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The fields of each row that is not blank, and the number of its (last) line: for one block or less, slow."""
    if separator == "::":
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip("\r"):
                yield number, line.strip("\r").split("::")
        return
    reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=separator)
    try:
        yield from ((reader.line_num, fields) for fields in reader if fields)
    except csv.Error:  # a field too long for Python's reader; the caller has seen all rows before it
        return


def is_number(field: str) -> bool:
    """Whether Python takes it for a number, with a fraction or without."""
    try:
        float(field)
    except ValueError:
        return False
    return True


@contextmanager
def one_line_errors(file: Path) -> Iterator[None]:
    """Whatever goes wrong in reading becomes a `DataError` about the file."""
    try:
        yield
    except _UNREADABLE as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(f"{file} cannot be read: {reason}") from None


def _sniff(file: Path, expected: Collection[str]) -> Layout:
    if not file.exists():
        raise DataError(f"{file} does not exist")
    with open(file, "rb") as opened:
        magic = opened.read(4)
    if not magic:
        raise DataError(f"{file} is empty")
    if magic == b"PAR1":
        return Layout(file, "parquet", tuple(parquet_schema(file).names()))
    if magic[:2] == b"PK":
        raise DataError(f"{file} is a zip archive; unpack it and name the file inside")
    gzipped = magic[:2] == b"\x1f\x8b"
    with one_line_errors(file), open_text(file, gzipped=gzipped) as text:
        head = text.read(_HEAD_BYTES)
    if not head.strip():
        raise DataError(f"{file} is empty")
    beginning = head.decode("utf-8-sig", "replace").lstrip("\r\n")
    if beginning.startswith("{"):
        return _json_layout(file, beginning, gzipped=gzipped)
    if beginning.startswith("["):
        raise DataError(f"{file} is one JSON array; write one object per line (JSON lines) instead")
    return _text_layout(file, beginning, gzipped=gzipped, expected=expected)


def _json_layout(file: Path, beginning: str, *, gzipped: bool) -> Layout:
    try:
        first = json.loads(beginning.partition("\n")[0])
    except json.JSONDecodeError as error:
        raise DataError(f"{file}, line 1 is not JSON ({error}); JSON lines have one whole object per line") from None
    return Layout(file, "json", tuple(first), gzipped=gzipped, first_row=tuple(first.values()))


def _text_layout(file: Path, beginning: str, *, gzipped: bool, expected: Collection[str]) -> Layout:
    line = beginning.partition("\n")[0]
    separator = max(_SEPARATORS, key=line.count)
    rows = [tuple(fields) for _, fields in islice(split_rows(beginning, separator), 2)]
    if not line.count(separator) or "\0" in line or not rows:
        raise DataError(f"{file} is not a known format: CSV, TSV, MovieLens ::, JSON lines, parquet, or gzip of these")
    has_header = bool(set(expected) & set(rows[0])) or not any(map(is_number, rows[0]))
    if has_header and len(rows) == 1:
        raise DataError(f"{file} has a header and no rows")
    names = rows[0] if has_header else tuple(f"column_{place}" for place in range(1, len(rows[0]) + 1))
    return Layout(file, "text", names, gzipped, separator, has_header, first_row=rows[-1 if has_header else 0])
