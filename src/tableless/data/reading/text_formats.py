"""The text formats: fields with a separator between them, and JSON lines with one object per line."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, final

import polars as pl

from ..interactions import DataError, Kind
from .text import TextLayout, decode_whole, first_values, open_bytes
from .values import Names, is_number, kind_of_id, one_line_errors

_SEPARATORS = ("::", "\t", ",", ";", "|")
_SHOWN_ROWS = 1000  # of the beginning, to find a value in each column


def sniff_separated(file: Path, beginning: str, *, gzipped: bool, expected: Collection[str]) -> SeparatedLayout:
    """Rows with separators. The first line is a header if it has an `expected` name, or no number."""
    line = beginning.partition("\n")[0]
    separator = max(_SEPARATORS, key=line.count)
    rows = [tuple(fields) for _, fields in islice(_split(beginning, separator), _SHOWN_ROWS)]
    if not line.count(separator) or "\0" in line or not rows:
        raise DataError(f"{file} is not a known format: CSV, TSV, MovieLens ::, JSON lines, parquet, or gzip of these")
    header = bool(set(expected) & set(rows[0])) or not any(map(is_number, rows[0]))
    if header and len(rows) == 1:
        raise DataError(f"{file} has a header and no rows")
    return SeparatedLayout(
        path=file,
        names=rows[0] if header else tuple(f"column_{place}" for place in range(1, len(rows[0]) + 1)),
        has_names=header,
        first_row=first_values(rows[1:] if header else rows),
        gzipped=gzipped,
        header=header,
        quoted=separator != "::",  # MovieLens has no quotes
        separator=separator,
    )


@final
@dataclass(frozen=True, kw_only=True)
class SeparatedLayout(TextLayout):
    """Fields with a separator (`,` `;` tab `|` or MovieLens' `::`) between them, with or without a header."""

    separator: str

    def kind_of_id(self, value: Any) -> Kind:
        """Text can only be judged by how it looks."""
        return kind_of_id(str(value))

    def parse(self, data: bytes, names: Names) -> pl.DataFrame:
        """Columns are called by their numbers meanwhile, so that a header may repeat a name."""
        separator = self.separator
        if separator == "::":  # polars wants a single character
            separator, data = "\x1f", data.replace(b"::", b"\x1f")
        data = data.lstrip(b"\r\n")  # polars takes a blank line for a row
        data = re.sub(rb"\n(?:\r?\n)+", b"\n", data) if b"\n\n" in data or b"\n\r" in data else data
        header = separator.join(map(str, range(len(self.names)))).encode()
        quotes = '"' if self.quoted else None
        # All columns are read, because polars checks the number of fields in a row only then.
        frame = pl.read_csv(header + b"\n" + data, separator=separator, quote_char=quotes, infer_schema=False)
        return frame.select(pl.col(str(self.names.index(name))).alias(role) for role, name in names.items())

    def split(self, text: str) -> Iterator[tuple[int, list[str]]]:
        """By Python, which counts lines."""
        return _split(text, self.separator)

    def fault_in(self, fields: list[str]) -> str | None:
        """Too few fields, or too many."""
        width = len(self.names)
        return None if len(fields) == width else f"has {len(fields)} fields, but the first line has {width}"

    def read_whole(self, names: Names) -> pl.DataFrame:
        """Strings. They may be Latin-1, as those of the older MovieLens files and of spreadsheets are."""
        with one_line_errors(self.path):
            with open_bytes(self.path, gzipped=self.gzipped) as opened:
                text = decode_whole(opened.read())
            if self.has_names:
                read, separator = list(names.values()), self.separator
                frame = pl.read_csv(text.encode(), columns=read, separator=separator, infer_schema=False)
                return frame.select(pl.col(name).alias(role) for role, name in names.items())
        places = {role: self.names.index(name) for role, name in names.items()}
        rows = [fields for _, fields in self.split(text)]
        return pl.DataFrame({
            role: pl.Series([row[place] if place < len(row) else None for row in rows], dtype=pl.String)
            for role, place in places.items()
        })  # fmt: skip


def _split(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
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


def sniff_json(file: Path, beginning: str, *, gzipped: bool) -> JsonLayout:
    """The columns are the keys of the first line."""
    if beginning.startswith("["):
        raise DataError(f"{file} is one JSON array; write one object per line (JSON lines) instead")
    try:
        first = json.loads(beginning.partition("\n")[0])
    except json.JSONDecodeError as error:
        raise DataError(f"{file}, line 1 is not JSON ({error}); JSON lines have one whole object per line") from None
    rows = [tuple(first.values())]
    if None in first.values():
        rows += _more_rows(beginning, tuple(first))
    return JsonLayout(path=file, names=tuple(first), first_row=first_values(rows), gzipped=gzipped)


def _more_rows(beginning: str, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The values of some lines after the first, to find one for each column."""
    rows = []
    for line in beginning.split("\n")[1:_SHOWN_ROWS]:
        try:
            values = json.loads(line)
        except json.JSONDecodeError:  # blank, or wrong: reading says so
            continue
        if isinstance(values, dict):
            rows.append(tuple(values.get(name) for name in names))
    return rows


@final
@dataclass(frozen=True, kw_only=True)
class JsonLayout(TextLayout):
    """Lines with the same keys, in any order."""

    def kind_of_id(self, value: Any) -> Kind:
        """JSON can tell "7" from 7."""
        return "string" if isinstance(value, str) else kind_of_id("" if value is None else str(value))

    def parse(self, data: bytes, names: Names) -> pl.DataFrame:
        """A key that a line does not have is null."""
        frame = pl.scan_ndjson(data, schema={name: pl.String() for name in names.values()}).collect()
        return frame.select(pl.col(name).alias(role) for role, name in names.items())

    def split(self, text: str) -> Iterator[tuple[int, list[str]]]:
        """A row has one field: the line."""
        return ((number, [line]) for number, line in enumerate(text.split("\n"), 1) if line.strip())

    def fault_in(self, fields: list[str]) -> str | None:
        """Not JSON, or not an object."""
        try:
            reason = None if isinstance(json.loads(fields[0]), dict) else "not an object"
        except json.JSONDecodeError as error:
            reason = str(error)
        return None if reason is None else f"is not a JSON object ({reason})"

    def read_whole(self, names: Names) -> pl.DataFrame:
        """With the types that polars infers."""
        columns = [pl.col(name).alias(role) for role, name in names.items()]
        with one_line_errors(self.path):
            return pl.scan_ndjson(self.path, infer_schema_length=None).select(columns).collect()
