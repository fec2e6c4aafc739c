"""Text files: rows with separators or JSON lines, block by block, and what is wrong with them, line by line."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import polars as pl

from ..interactions import DataError
from .columns import Columns
from .sniffing import Layout, Place, one_line_errors, open_text, split_rows

_BLOCK_BYTES = 32 << 20
_LONGEST_ROW = 256 << 20


def read_text(layout: Layout, columns: Columns) -> Iterator[tuple[pl.DataFrame, Place]]:
    """The columns wanted, named by their roles, as strings."""
    for block in _blocks(layout):
        try:
            frame = block.parse(columns)
        except pl.exceptions.PolarsError as error:
            raise block.explain(error) from None
        yield frame, block.place


def _blocks(layout: Layout) -> Iterator[_Block]:
    """Whole rows, some `_BLOCK_BYTES` at a time: polars alone would map the whole file."""
    lines_before, rest = 0, b""
    with one_line_errors(layout.path), open_text(layout.path, gzipped=layout.gzipped) as text:
        if layout.has_header:
            while not text.readline().strip(b"\r\n"):
                lines_before += 1
            lines_before += 1
        else:
            rest = text.read(len(BOM_UTF8)).removeprefix(BOM_UTF8)
        while data := text.read(_BLOCK_BYTES):
            data = rest + data
            end = _end_of_rows(data, quoted=layout.quotes is not None)
            if end:
                yield _Block(layout, data[:end], lines_before)
            lines_before += data.count(b"\n", 0, end)
            rest = data[end:]
            if len(rest) > _LONGEST_ROW:
                raise DataError(f"{layout.path}, line {lines_before + 1} does not end; is a quote left open in it?")
        if rest.strip():
            yield _Block(layout, rest, lines_before)


def _end_of_rows(data: bytes, *, quoted: bool) -> int:
    end = data.rfind(b"\n") + 1
    if quoted and data.count(b'"', 0, end) % 2:  # the last line feed lies within quotes: end before they open
        end = data.rfind(b"\n", 0, data.rfind(b'"', 0, end)) + 1
    return end


@dataclass(frozen=True)
class _Block:
    """Whole rows of a file, small enough to be looked at in Python if something is wrong."""

    layout: Layout
    data: bytes
    lines_before: int

    def parse(self, columns: Columns) -> pl.DataFrame:
        return self._parse_json(columns) if self.layout.format == "json" else self._parse_separated(columns)

    def place(self, row: int) -> str:
        """Where a row is in the file."""
        numbers = (number for number, _ in self._rows())
        return self._line(next(islice(numbers, row, None), 0))

    def explain(self, error: Exception) -> DataError:
        """What polars does not say: the line."""
        lines = self.data.split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return DataError(
                    f"{self._line(number)} is not UTF-8; convert the file first (iconv -f latin1 -t utf-8)"
                )
        if misshapen := self._misshapen_row():
            return misshapen
        for number, line in enumerate(lines, 1):
            if self.layout.quotes and line.count(b'"') % 2:
                return DataError(f"{self._line(number)} has a quote that is not closed, or not doubled")
        reason = str(error).partition("\n")[0]
        return DataError(f"{self.layout.path}, in the lines from {self.lines_before + 1}: {reason}")

    def _parse_json(self, columns: Columns) -> pl.DataFrame:
        schema = {name: pl.String() for name in columns.by_role.values()}
        frame = pl.scan_ndjson(self.data, schema=schema).collect()
        return frame.select(pl.col(name).alias(role) for role, name in columns.by_role.items())

    def _parse_separated(self, columns: Columns) -> pl.DataFrame:
        names, separator, data = self.layout.names, self.layout.separator, self.data
        if separator == "::":  # polars wants a single character
            separator, data = "\x1f", data.replace(b"::", b"\x1f")
        data = data.lstrip(b"\r\n")  # polars takes a blank line for a row
        data = re.sub(rb"\n(?:\r?\n)+", b"\n", data) if b"\n\n" in data or b"\n\r" in data else data
        # Places for names, so that a header may repeat one; polars checks rows against it only if it reads all of them.
        header = separator.join(map(str, range(len(names)))).encode()
        frame = pl.read_csv(
            header + b"\n" + data, separator=separator, quote_char=self.layout.quotes, infer_schema=False
        ).select(pl.col(str(names.index(name))).alias(role) for role, name in columns.by_role.items())
        if any(frame.null_count().row(0)) and (misshapen := self._misshapen_row()):
            raise misshapen
        return frame

    def _misshapen_row(self) -> DataError | None:
        """The first row with too few or too many fields, or that is no JSON object."""
        width = len(self.layout.names)
        for number, fields in self._rows():
            if self.layout.format == "json":
                if reason := _why_not_an_object(fields[0]):
                    return DataError(f"{self._line(number)} is not a JSON object ({reason})")
            elif len(fields) != width:
                return DataError(f"{self._line(number)} has {len(fields)} fields, but the first line has {width}")
        return None

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        text = self.data.decode("utf-8-sig", "replace")
        if self.layout.format == "json":
            return ((number, [line]) for number, line in enumerate(text.split("\n"), 1) if line.strip())
        return split_rows(text, self.layout.separator)

    def _line(self, number: int) -> str:
        return f"{self.layout.path}, line {self.lines_before + number}"


def _why_not_an_object(line: str) -> str | None:
    try:
        return None if isinstance(json.loads(line), dict) else "not an object"
    except json.JSONDecodeError as error:
        return str(error)
