"""Text: what all text formats share. Bytes as UTF-8, lines block by block, and what is wrong with a line.

A file that is not UTF-8 is taken for Latin-1, as spreadsheets write it.
"""

from __future__ import annotations

import gzip
from abc import abstractmethod
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import polars as pl

from ..interactions import DataError, Kind
from .values import Kinds, Layout, Names, Note, RowPlace, kind_of_time, looks_like_a_date, one_line_errors

_BLOCK_BYTES = 32 << 20
_LONGEST_ROW = 256 << 20
_HEAD_BYTES = 1 << 20


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


def open_bytes(file: Path, *, gzipped: bool) -> BinaryIO:
    """The bytes of a file, unpacked if it is gzipped."""
    return cast(BinaryIO, gzip.open(file, "rb") if gzipped else file.open("rb"))


def read_beginning(file: Path, *, gzipped: bool) -> str:
    """Enough of a text file to tell what it is, from its first line that is not blank."""
    with one_line_errors(file), open_bytes(file, gzipped=gzipped) as opened:
        head = opened.read(_HEAD_BYTES)
    if not head.strip():
        raise DataError(f"{file} is empty")
    if len(head) == _HEAD_BYTES:  # a character may be cut in two at the end: end with a whole line
        head = head[: head.rfind(b"\n") + 1] or head
    return ToUtf8()(head).decode("utf-8-sig", "replace").lstrip("\r\n")


class ToUtf8:
    """Turns the blocks of one file into UTF-8, and remembers which encoding they have shown.

    A block that is neither stays as it is: the caller finds the line that is wrong.
    """

    encoding: str | None = None  # None: only ASCII so far, which is the same in both

    def __call__(self, data: bytes) -> bytes:
        """A block as UTF-8."""
        if data.isascii():
            return data
        if self.encoding is None:
            self.encoding = _guess_encoding(data)
        return data.decode("latin-1").encode() if self.encoding == "latin-1" else data


def decode_whole(content: bytes) -> str:
    """The text of a whole file."""
    return ToUtf8()(content).decode("utf-8-sig")


def _guess_encoding(data: bytes) -> str:
    """UTF-8 with a damaged character still has more characters that are whole; Latin-1 has hardly any such."""
    text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    whole = len(text) - len(text.encode("ascii", "ignore")) - broken
    return "latin-1" if broken > whole else "utf-8"
