"""Values: what a format has to answer about a file (`Layout`), what the values of its columns are (`Kinds`), and times.

Times that are numbers stay as they are, dates become microseconds. A date such as 12/1/2010 has the day or the month
first. No row alone can tell, so all rows are read until one can (13/1/2010, 12/31/2010). Then everything is read again,
with what that row has shown.
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

from ..interactions import DataError, Kind

RowPlace = Callable[[int], str]  # where a row of what was read is: the file and the line
Note = Callable[[str], None]  # is told what was decided while a file was read
Names = Mapping[str, str]  # the role of a column ("user", "item", "time", "part", "rating", "title") → its name
TimeKind = Literal["integer", "number", "datetime", "day-first", "month-first", "either-first", "part"]
"""What times are. The three with -first are dates such as 12/1/2010. "part": a `Part` is in the place of the time."""

_UNREADABLE = (
    *(pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException),
    *(OSError, EOFError, zlib.error, UnicodeDecodeError),
)
_DATE = (
    r"^\s*(?P<first>[0-9]{1,2})(?:[/.-](?P<second>[0-9]{1,2})[/.-](?P<year>[0-9]{4})|[/.](?P<second2>[0-9]{1,2})[/.](?P<year2>[0-9]{2}))"
    r"(?:[ T,]+(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<sec>[0-9]{2})(?:[.,](?P<micro>[0-9]{1,6})[0-9]*)?)?"
    r"\s*(?P<half>[AaPp])?\.?[Mm]?\.?)?\s*$"
)


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

    def __init__(self, kinds: Kinds, note: str | None = None) -> None:
        super().__init__(kinds)
        self.kinds = kinds
        self.note = note  # what a user is told about it


@dataclass(frozen=True, kw_only=True)
class Layout(ABC):
    """How one file is read. Each format has a layout of its own, and only it knows the format."""

    has_types: ClassVar[bool] = False  # True: the kinds are certain before any row is read
    path: Path
    names: tuple[str, ...]  # of all columns
    has_names: bool = True  # False: the file names no columns, and they are called column_1, column_2, …
    first_row: tuple[Any, ...] = ()  # the first value of each column; only where columns have no names or no types

    @property
    def listing(self) -> str:
        """The names as a message shows them: on one line, whatever characters are in them."""
        shown = ", ".join(name if name.isprintable() else repr(name) for name in self.names[:20])
        return shown if len(self.names) <= 20 else f"{shown}, … ({len(self.names)} in all)"

    @abstractmethod
    def kinds(self, names: Names) -> Kinds:
        """What the users, items and times are: certain where columns have types, else as in the first row."""

    @abstractmethod
    def has_dates(self, name: str) -> bool:
        """Whether a column seems to hold dates."""

    @abstractmethod
    def read(
        self, names: Names, *, rows: tuple[int, int] | None = None, note: Note | None = None
    ) -> Iterator[tuple[pl.DataFrame, RowPlace]]:
        """All rows in order, some at a time; the columns are called by their roles.

        `rows` are the first row and the one after the last, for a format that can `count_rows`. `note` is told what
        had to be decided on the way.
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
    """Integers are only those that come back as the same text: 007 and 7 are different ids.

    Numbers with a point count as integers here: 7.0 is one, and 7.5 is refused when it is read. So does no value.
    """
    return "integer" if re.fullmatch(r"|0|-?[1-9][0-9]{0,18}|-?[0-9]+\.[0-9]*", text) else "string"


def kind_of_time(text: str) -> TimeKind:
    """What a time looks like. Text that is no number is taken for a date."""
    if re.fullmatch("-?[0-9]+", text) or not text:
        return "integer"
    if is_number(text):
        return "number"
    return "either-first" if re.match(_DATE, text) else "datetime"


def kind_by_format(date_format: str) -> TimeKind:
    """What a user has said about the dates."""
    by_order: dict[str, TimeKind] = {"dmy": "day-first", "mdy": "month-first"}
    return by_order.get(date_format, "datetime")


def looks_like_a_date(text: str) -> bool:
    """1/12/2010, 2010-12-01 and the like."""
    return bool(re.match(_DATE, text) or re.match(r"\s*[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}", text))


def to_times(
    values: pl.Series, name: str, *, kinds: Kinds, place: RowPlace, date_format: str | None
) -> NDArray[np.int64] | NDArray[np.float64]:
    """int64 in the unit of the data, microseconds for dates. Numbers with a fraction stay float64, to be sorted by.

    Where it is not known yet whether the day or the month is first ("either-first"), the times only hold their places.
    """
    if date_format is not None and values.dtype in (pl.Date, pl.Datetime):
        raise DataError(f"{place(0)}: column {name!r} has dates with a type; leave out --date-format (date_format)")
    numbers = _parse_times(values, kinds.time, date_format)
    unparsed = numbers.is_null()
    if unparsed.any() and kinds.time == "integer" and _are_numbers(values.filter(unparsed)):
        raise KindsChanged(replace(kinds, time="number"))
    bad = unparsed | ~numbers.is_finite() | (numbers.abs() >= 2.0**63) if numbers.dtype.is_float() else unparsed
    if bad.any():
        row = int(bad.arg_max() or 0)
        how = {"day-first": " with the day first", "month-first": " with the month first"}.get(kinds.time or "", "")
        raise DataError(
            f"{place(row)}: {values[row]!r} (column {name!r}) is not a time{how}; mend it, say how dates are written "
            "(--date-format, date_format), or leave times out (--time-col '', time_col='')"
        )
    return numbers.to_numpy()


def look_for_order(values: pl.Series, name: str, kinds: Kinds) -> None:
    """Raise `KindsChanged` if it was open whether the day or the month is first, and one of the dates tells."""
    if kinds.time != "either-first":
        return
    parts = _parts_of(values)
    shown: tuple[tuple[str, TimeKind, str], ...] = (("first", "day-first", "day"), ("second", "month-first", "month"))
    for column, kind, word in shown:
        telling = (parts[column] > 12).fill_null(False)
        if telling.any():
            example = values[int(telling.arg_max() or 0)]
            raise KindsChanged(
                replace(kinds, time=kind), f"the dates of `{name}` are read with the {word} first, as in {example!r}"
            )


def refuse_open_dates(kinds: Kinds, where: str) -> None:
    """After the last row: no date has shown whether the day or the month is first."""
    if kinds.time == "either-first":
        raise DataError(
            f"{where}: its dates can be read with the day or with the month first, and no row tells which; say it by "
            "--date-format dmy or --date-format mdy (in Python date_format='dmy' or 'mdy')"
        )


def _are_numbers(values: pl.Series) -> bool:
    return values.cast(pl.Float64, strict=False).null_count() == 0


def _parse_times(values: pl.Series, kind: TimeKind | None, date_format: str | None) -> pl.Series:
    """Int64, or Float64 for numbers; null where it cannot be parsed."""
    if kind == "number":
        return values.cast(pl.Float64, strict=False)
    if kind == "integer":
        return values.cast(pl.Int64, strict=False)
    if kind in ("day-first", "month-first", "either-first"):
        return _from_parts(_parts_of(values), month_first=kind == "month-first")
    if date_format is not None:
        values = values.cast(pl.String)
    if values.dtype == pl.String:
        try:
            values = values.str.to_datetime(date_format, time_unit="us", strict=False)
        except pl.exceptions.PolarsError:  # polars found no format that fits
            return pl.Series([None] * len(values), dtype=pl.Int64)
    return values.cast(pl.Datetime("us")).to_physical()


def _parts_of(values: pl.Series) -> pl.DataFrame:
    """The numbers in each date; null where it is no date."""
    parts = values.cast(pl.String).str.extract_groups(_DATE).struct.unnest()
    short = pl.col("year2").cast(pl.Int64)
    century = pl.when(short < 70).then(2000).otherwise(1900)
    return parts.select(
        pl.col("first").cast(pl.Int64),
        pl.coalesce("second", "second2").cast(pl.Int64).alias("second"),
        pl.coalesce(pl.col("year").cast(pl.Int64), short + century).alias("year"),
        *(pl.col(name).cast(pl.Int64).fill_null(0) for name in ("hour", "minute", "sec")),
        pl.col("micro").str.pad_end(6, "0").cast(pl.Int64).fill_null(0),
        pl.col("half").str.to_lowercase(),
    )


def _from_parts(parts: pl.DataFrame, *, month_first: bool) -> pl.Series:
    day, month = ("second", "first") if month_first else ("first", "second")
    hour = pl.when(pl.col("half").is_null()).then(pl.col("hour")).otherwise(
        pl.col("hour") % 12 + pl.when(pl.col("half") == "p").then(12).otherwise(0)
    )  # fmt: skip
    text = pl.format("{}-{}-{} {}:{}:{}", "year", month, day, hour, "minute", "sec")
    parsed = text.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False).to_physical()
    return parts.select(parsed + pl.col("micro")).to_series()
