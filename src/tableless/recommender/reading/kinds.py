"""Kinds: whether the ids of a column are integers or strings, and what its times are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from ..interactions import DataError, Kind
from .columns import Columns
from .file_formats import Layout, find_layout, is_number, parquet_schema
from .parquet_files import first_value

TimeKind = Literal["integer", "number", "datetime", "part"]  # "part": a `Part` stands in the place of the time


@dataclass(frozen=True)
class Kinds:
    """What the values of each column are. Text can hold integers as well as strings: only reading it all can tell."""

    user: Kind
    item: Kind
    time: TimeKind | None


class KindsChanged(Exception):
    """A value further down shows that a text column is not what its first rows were; start again with `kinds`."""

    def __init__(self, kinds: Kinds) -> None:
        super().__init__(kinds)
        self.kinds = kinds


def first_kinds(files: Sequence[Path], columns: Columns) -> Kinds:
    """The kinds of columns: certain for parquet, for text as the first row has them (see `KindsChanged`)."""
    kinds = None
    for file in files:
        layout = find_layout(file, expected=columns.by_role.values())
        if layout.format != "parquet":
            return kinds or _kinds_of_text(layout, columns)
        these = _kinds_of_parquet(file, columns)
        if kinds is not None and these != kinds:
            raise DataError(
                f"{file} has {these.user} users, {these.item} items and {these.time} times, but the files before it "
                f"{kinds.user}, {kinds.item} and {kinds.time}; a column of ids has one kind"
            )
        kinds = these
    assert kinds is not None
    return kinds


def common_kinds(one: Kinds, other: Kinds) -> Kinds:
    """The kinds of two files whose ids mean the same users and items: an id is a string if it is one in either."""
    user: Kind = "string" if "string" in (one.user, other.user) else "integer"
    item: Kind = "string" if "string" in (one.item, other.item) else "integer"
    return Kinds(user, item, one.time)


def _kinds_of_text(layout: Layout, columns: Columns) -> Kinds:
    first = dict(zip(layout.names, layout.first_row, strict=False))

    def kind(name: str) -> Kind:
        value = first.get(name)
        is_text = layout.format == "json" and isinstance(value, str)  # JSON can tell "7" from 7
        return "string" if is_text or not _is_plain_integer(str(value)) else "integer"

    time = None if columns.time is None else _kind_of_time(str(first.get(columns.time)))
    return Kinds(kind(columns.user), kind(columns.item), time)


def _is_plain_integer(text: str) -> bool:
    """Whether an integer loses nothing: 007 and 7 are different ids."""
    return re.fullmatch("0|-?[1-9][0-9]{0,18}", text) is not None


def _kind_of_time(text: str) -> TimeKind:
    return "integer" if re.fullmatch("-?[0-9]+", text) else "number" if is_number(text) else "datetime"


def _kinds_of_parquet(file: Path, columns: Columns) -> Kinds:
    schema = parquet_schema(file)

    def kind(name: str) -> Kind:
        dtype = schema[name]
        if dtype.is_integer():
            return "integer"
        if dtype in (pl.String, pl.Binary, pl.Categorical, pl.Enum):
            return "string"
        raise DataError(f"{file}: column {name!r} is {dtype}, but ids are integers or strings; cast it first")

    time = None if columns.time is None else _kind_of_parquet_time(file, columns.time, schema[columns.time])
    return Kinds(kind(columns.user), kind(columns.item), time)


def _kind_of_parquet_time(file: Path, name: str, dtype: pl.DataType) -> TimeKind:
    if dtype.is_integer():
        return "integer"
    if dtype.is_numeric():
        return "number"
    if dtype in (pl.Date, pl.Datetime):
        return "datetime"
    if dtype == pl.String:
        first = first_value(file, name)
        return "integer" if first is None else _kind_of_time(str(first))
    raise DataError(f"{file}: column {name!r} is {dtype}, which cannot be a time; give another as time_col")
