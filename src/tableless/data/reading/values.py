"""Kinds: whether the ids of a column are integers or strings, and what its times are.

Raw values: what stands in the columns → ids, times or parts, and names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ...embedding.ids import to_ids
from ..interactions import DataError, Kind, Part
from .columns import Columns
from .parquet_rows import first_value
from .sniffing import Layout, Place, find_layout, is_number, parquet_schema

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


# What a column may say of the part that a row belongs to, in any case of letters.
_PARTS = {
    "train": Part.TRAIN,
    "validation": Part.VALIDATION,
    "valid": Part.VALIDATION,
    "val": Part.VALIDATION,
    "dev": Part.VALIDATION,
    "test": Part.TEST,
}


@dataclass(frozen=True)
class Batch:
    """Some rows of a file, in order."""

    users: NDArray[np.int64]  # [rows] ids
    items: NDArray[np.int64]  # [rows]
    times: NDArray[np.int64] | NDArray[np.float64] | None  # [rows]; in a given split each row's `Part`
    item_names: pl.Series  # [rows] as the user wrote them


def to_batch(frame: pl.DataFrame, columns: Columns, *, kinds: Kinds, place: Place) -> Batch:
    """A frame whose columns are named by their roles. Raises `KindsChanged` if text holds values of another kind."""
    for role, name in columns.by_role.items():
        missing = frame[role].is_null() | (frame[role] == "" if frame[role].dtype == pl.String else False)
        if missing.any():
            row = int(missing.arg_max() or 0)
            raise DataError(f"{place(row)}: the {role} (column {name!r}) is missing; drop such rows, or fill them")
    try:
        users, items = _ids(frame["user"], kinds.user), _ids(frame["item"], kinds.item)
    except ValueError as error:
        raise DataError(f"{place(0)} and those after it: {error}") from None
    if users is None or items is None:
        user_kind: Kind = "string" if users is None else kinds.user
        item_kind: Kind = "string" if items is None else kinds.item
        raise KindsChanged(replace(kinds, user=user_kind, item=item_kind))
    times = None if columns.time is None else _times(frame["time"], columns.time, kinds=kinds, place=place)
    if columns.part is not None:
        times = _parts(frame["part"], columns.part, place=place)
    return Batch(users, items, times, _names(frame["item"]))


def _names(raw: pl.Series) -> pl.Series:
    """Strings as they are, bytes as text if they are some and else in hexadecimal."""
    if raw.dtype == pl.Binary:
        return raw.cast(pl.String, strict=False).fill_null(raw.bin.encode("hex"))
    return raw if raw.dtype.is_integer() else raw.cast(pl.String)


def _ids(values: pl.Series, kind: Kind) -> NDArray[np.int64] | None:
    """None if text that was taken for integers holds something else."""
    if values.dtype == pl.String and kind == "integer":
        integers = values.cast(pl.Int64, strict=False)
        if not (integers.cast(pl.String) == values).all(ignore_nulls=False):
            return None
        values = integers
    if values.dtype.is_integer() and kind == "string":
        raise ValueError(f"{values.name} ids are integers here, and strings in the other file; give both the same kind")
    return to_ids(values).numpy()


def _parts(values: pl.Series, name: str, *, place: Place) -> NDArray[np.int64]:
    said = values.cast(pl.String).str.strip_chars().str.to_lowercase()
    parts = said.replace_strict(_PARTS, default=None, return_dtype=pl.Int64)
    if parts.null_count():
        row = int(parts.is_null().arg_max() or 0)
        raise DataError(f"{place(row)}: {values[row]!r} (column {name!r}) must be one of {', '.join(_PARTS)}")
    return parts.to_numpy()


def _times(values: pl.Series, name: str, *, kinds: Kinds, place: Place) -> NDArray[np.int64] | NDArray[np.float64]:
    """int64 in the unit of the data, microseconds for dates; numbers with a fraction stay float64, to be sorted by."""
    numbers = _parse_times(values, kinds.time)
    unparsed = numbers.is_null()
    if unparsed.any() and kinds.time == "integer" and _parse_times(values.filter(unparsed), "number").null_count() == 0:
        raise KindsChanged(replace(kinds, time="number"))
    bad = unparsed | ~numbers.is_finite() | (numbers.abs() >= 2.0**63) if numbers.dtype.is_float() else unparsed
    if bad.any():
        row = int(bad.arg_max() or 0)
        raise DataError(
            f"{place(row)}: {values[row]!r} (column {name!r}) is not a time; mend it, or leave times out (time_col='')"
        )
    return numbers.to_numpy()


def _parse_times(values: pl.Series, kind: TimeKind | None) -> pl.Series:
    """Int64, or Float64 for numbers; null where it cannot be parsed."""
    if kind == "number":
        return values.cast(pl.Float64, strict=False)
    if kind == "integer":
        return values.cast(pl.Int64, strict=False)
    if values.dtype == pl.String:
        try:
            values = values.str.to_datetime(time_unit="us", strict=False)
        except pl.exceptions.PolarsError:  # not even a format was found
            return pl.Series([None] * len(values), dtype=pl.Int64)
    return values.cast(pl.Datetime("us")).to_physical()
