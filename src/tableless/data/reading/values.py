"""Values: what stands in the columns of a file → ids, times, parts and names.

`Layout` is what a format has to answer. `Kinds` says what the values of the columns are.
"""

from __future__ import annotations

import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from ...embedding.ids import to_ids
from ..interactions import DataError, Kind, Part

RowPlace = Callable[[int], str]  # where a row of what was read is: the file and the line
Names = Mapping[str, str]  # the role of a column ("user", "item", "time", "part", "title") → its name in the file
TimeKind = Literal["integer", "number", "datetime", "part"]  # "part": a `Part` stands in the place of the time

_UNREADABLE = (
    *(pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException),
    *(OSError, EOFError, zlib.error, UnicodeDecodeError),
)
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
class Kinds:
    """What the values of each column are. Text can hold integers or strings: only reading all of it can tell."""

    user: Kind
    item: Kind
    time: TimeKind | None


def common_kinds(train: Kinds, test: Kinds) -> Kinds:
    """The kinds of two sources whose ids mean the same users and items: an id is a string if it is one in either."""
    user: Kind = "string" if "string" in (train.user, test.user) else "integer"
    item: Kind = "string" if "string" in (train.item, test.item) else "integer"
    return Kinds(user, item, "part")


class KindsChanged(Exception):
    """A value shows that a text column is not what its first row was. Read everything again, with `kinds`."""

    def __init__(self, kinds: Kinds) -> None:
        super().__init__(kinds)
        self.kinds = kinds


@dataclass(frozen=True, kw_only=True)
class Layout(ABC):
    """How one file is read. Each format has a layout of its own, and only it knows the format."""

    has_types: ClassVar[bool] = False  # True: the kinds are certain before any row is read
    path: Path
    names: tuple[str, ...]  # of all columns
    has_names: bool = True  # False: the file names no columns, and they are called column_1, column_2, …
    first_row: tuple[Any, ...] = ()  # what stands in each column; only where columns have no names or no types

    @property
    def listing(self) -> str:
        """The names as a message shows them: on one line, whatever characters are in them."""
        shown = ", ".join(name if name.isprintable() else repr(name) for name in self.names[:20])
        return shown if len(self.names) <= 20 else f"{shown}, … ({len(self.names)} in all)"

    @abstractmethod
    def kinds(self, names: Names) -> Kinds:
        """What the users, items and times are: certain where columns have types, else as in the first row."""

    @abstractmethod
    def read(self, names: Names, *, rows: tuple[int, int] | None = None) -> Iterator[tuple[pl.DataFrame, RowPlace]]:
        """All rows in order, some at a time; the columns are called by their roles.

        `rows` are the first row and the one after the last, for a format that can `count_rows`.
        """

    @abstractmethod
    def read_whole(self, names: Names) -> pl.DataFrame:
        """All rows at once, for a small file of titles; the columns are called by their roles."""

    def count_rows(self) -> int:
        """How many rows the file has, known without reading them."""
        raise DataError(f"{self.path} is not parquet, and only parquet can be streamed; write it as parquet first")


@contextmanager
def one_line_errors(file: Path) -> Iterator[None]:
    """Every error of the libraries that read becomes a `DataError` about the file."""
    try:
        yield
    except _UNREADABLE as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(f"{file} cannot be read: {reason}") from None


def is_number(text: str) -> bool:
    """Whether Python takes it for a number, with a fraction or without."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def kind_of_id(text: str) -> Kind:
    """Integers are only those that come back as the same text: 007 and 7 are different ids."""
    return "integer" if re.fullmatch("0|-?[1-9][0-9]{0,18}", text) else "string"


def kind_of_time(text: str) -> TimeKind:
    """What a time looks like; what is no number is taken for a date."""
    return "integer" if re.fullmatch("-?[0-9]+", text) else "number" if is_number(text) else "datetime"


@dataclass(frozen=True)
class ActionBatch:
    """Some rows of a file, in order."""

    users: NDArray[np.int64]  # [rows] ids
    items: NDArray[np.int64]  # [rows]
    times: NDArray[np.int64] | NDArray[np.float64] | None  # [rows]; in a given split each row's `Part`
    item_names: pl.Series  # [rows] as the user wrote them


def to_batch(frame: pl.DataFrame, names: Names, *, kinds: Kinds, place: RowPlace) -> ActionBatch:
    """The ids and times of a frame from `Layout.read`. Raises `KindsChanged` if text is of another kind."""
    for role, name in names.items():
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
    times: NDArray[np.int64] | NDArray[np.float64] | None = None
    if "part" in names:
        times = _parts(frame["part"], names["part"], place=place)
    elif "time" in names:
        times = _times(frame["time"], names["time"], kinds=kinds, place=place)
    return ActionBatch(users, items, times, _item_names(frame["item"]))


def _item_names(raw: pl.Series) -> pl.Series:
    """Strings as they are; bytes as text, or in hexadecimal where they are no text."""
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


def _parts(values: pl.Series, name: str, *, place: RowPlace) -> NDArray[np.int64]:
    said = values.cast(pl.String).str.strip_chars().str.to_lowercase()
    parts = said.replace_strict(_PARTS, default=None, return_dtype=pl.Int64)
    if parts.null_count():
        row = int(parts.is_null().arg_max() or 0)
        raise DataError(f"{place(row)}: {values[row]!r} (column {name!r}) must be one of {', '.join(_PARTS)}")
    return parts.to_numpy()


def _times(values: pl.Series, name: str, *, kinds: Kinds, place: RowPlace) -> NDArray[np.int64] | NDArray[np.float64]:
    """int64 in the unit of the data, microseconds for dates. Numbers with a fraction stay float64, to be sorted by."""
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
        except pl.exceptions.PolarsError:  # polars found no format that fits
            return pl.Series([None] * len(values), dtype=pl.Int64)
    return values.cast(pl.Datetime("us")).to_physical()
