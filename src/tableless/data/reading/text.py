"""Text: lines of a file block by block, what is wrong with them line by line, and rows with separators."""

from __future__ import annotations

import csv
import io
import re
from abc import abstractmethod
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, final

import polars as pl

from ..interactions import DataError, Kind
from .decoding import ToUtf8, decode_whole, open_bytes
from .times import kind_of_time, looks_like_a_date
from .values import Kinds, Layout, Names, Note, RowPlace, is_number, kind_of_id, one_line_errors

_SEPARATORS = ("::", "\t", ",", ";", "|")
_SHOWN_ROWS = 1000  # of the beginning, to find a value in each column
_BLOCK_BYTES = 32 << 20
_LONGEST_ROW = 256 << 20


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


def first_values(rows: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """What stands in each column of the first row, or where it is empty in the first row that has a value there."""
    return tuple(
        next((row[place] for row in rows if place < len(row) and row[place] not in ("", None)), value)
        for place, value in enumerate(rows[0])
    )


@dataclass(frozen=True, kw_only=True)
class TextLayout(Layout):
    """Lines of text. The first row shows what the columns hold, and a later one can still show something else."""

    gzipped: bool
    header: bool = False  # the first line has the names
    quoted: bool = False  # a line feed between quotes does not end a row

    @abstractmethod
    def kind_of_id(self, value: Any) -> Kind:
        """The kind of an id in the first row."""

    @abstractmethod
    def parse(self, data: bytes, names: Names) -> pl.DataFrame:
        """Whole rows as strings, by polars."""

    @abstractmethod
    def split(self, text: str) -> Iterator[tuple[int, list[str]]]:
        """The number of the (last) line and the fields of each row that is not blank: slow, to find what is wrong."""

    @abstractmethod
    def fault_in(self, fields: list[str]) -> str | None:
        """What is wrong with the shape of a row."""

    def kinds(self, names: Names) -> Kinds:
        """As the first row has them (see `KindsChanged`)."""
        first = dict(zip(self.names, self.first_row, strict=False))
        time = kind_of_time(str(first.get(names["time"]))) if "time" in names else None
        return Kinds(self.kind_of_id(first.get(names["user"])), self.kind_of_id(first.get(names["item"])), time)

    def has_dates(self, name: str) -> bool:
        """As in the first row."""
        return looks_like_a_date(str(dict(zip(self.names, self.first_row, strict=False)).get(name)))

    def read(
        self, names: Names, *, rows: tuple[int, int] | None = None, note: Note | None = None
    ) -> Iterator[tuple[pl.DataFrame, RowPlace]]:
        """All columns are strings."""
        assert rows is None, "text cannot count its rows"
        for block in self._blocks(note):
            try:
                frame = self.parse(block.data, names)
            except pl.exceptions.PolarsError as error:
                raise block.explain(error) from None
            # polars fills up a row that is too short with nulls.
            if any(frame.null_count().row(0)) and (misshapen := block.misshapen_row()):
                raise misshapen
            yield frame, block.place

    def _blocks(self, note: Note | None) -> Iterator[_Block]:
        """Whole rows, some `_BLOCK_BYTES` at a time: polars alone would map the whole file."""
        to_utf8 = ToUtf8()
        for data, lines_before in self._raw_blocks():
            block = _Block(self, to_utf8(data), lines_before)
            if to_utf8.encoding == "latin-1" and note is not None:
                note(f"{self.path} is not UTF-8, and is read as latin-1")
            yield block

    def _raw_blocks(self) -> Iterator[tuple[bytes, int]]:
        """With the number of lines before each."""
        lines_before, rest = 0, b""
        with one_line_errors(self.path), open_bytes(self.path, gzipped=self.gzipped) as opened:
            if self.header:
                while not opened.readline().strip(b"\r\n"):
                    lines_before += 1
                lines_before += 1
            else:
                rest = opened.read(len(BOM_UTF8)).removeprefix(BOM_UTF8)
            while data := opened.read(_BLOCK_BYTES):
                data = rest + data
                end = _end_of_rows(data, quoted=self.quoted)
                if end:
                    yield data[:end], lines_before
                lines_before += data.count(b"\n", 0, end)
                rest = data[end:]
                if len(rest) > _LONGEST_ROW:
                    raise DataError(f"{self.path}, line {lines_before + 1} does not end; is a quote left open in it?")
            if rest.strip():
                yield rest, lines_before


def _end_of_rows(data: bytes, *, quoted: bool) -> int:
    end = data.rfind(b"\n") + 1
    if quoted and data.count(b'"', 0, end) % 2:  # the last line feed lies within quotes: end before they open
        end = data.rfind(b"\n", 0, data.rfind(b'"', 0, end)) + 1
    return end


@dataclass(frozen=True)
class _Block:
    """Whole rows of a file, few enough to be looked at in Python if something is wrong."""

    layout: TextLayout
    data: bytes
    lines_before: int

    def place(self, row: int) -> str:
        """Where a row is in the file."""
        numbers = (number for number, _ in self._rows())
        return self._line(next(islice(numbers, row, None), 0))

    def explain(self, error: Exception) -> DataError:
        """Where and why polars could not parse the block."""
        lines = self.data.split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return DataError(
                    f"{self._line(number)} is not UTF-8; convert the file first (iconv -f latin1 -t utf-8)"
                )
        if misshapen := self.misshapen_row():
            return misshapen
        for number, line in enumerate(lines, 1):
            if self.layout.quoted and line.count(b'"') % 2:
                return DataError(f"{self._line(number)} has a quote that is not closed, or not doubled")
        reason = str(error).partition("\n")[0]
        return DataError(f"{self.layout.path}, in the lines from {self.lines_before + 1}: {reason}")

    def misshapen_row(self) -> DataError | None:
        """What is wrong with the first row that has another shape than the file."""
        for number, fields in self._rows():
            if fault := self.layout.fault_in(fields):
                return DataError(f"{self._line(number)} {fault}")
        return None

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        return self.layout.split(self.data.decode("utf-8-sig", "replace"))

    def _line(self, number: int) -> str:
        return f"{self.layout.path}, line {self.lines_before + number}"


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
