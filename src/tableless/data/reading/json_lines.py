"""JSON lines: one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import polars as pl

from ..interactions import DataError, Kind
from .text import TextLayout, first_values
from .values import Names, kind_of_id, one_line_errors

_SHOWN_LINES = 1000


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
    for line in beginning.split("\n")[1:_SHOWN_LINES]:
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
