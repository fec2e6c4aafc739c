"""The columns of a click model: what a user says of each, and how its values become ids or numbers.

A missing value is an id like any other, that of the empty string. A list may have any length, also none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ...embedding.ids import to_ids
from ...files.scheme_directory import require_kinds
from ..interactions import DataError, Kind

if TYPE_CHECKING:
    import polars as pl

    from ..reading.values import RowPlace

ColumnKind = Literal["integer", "string", "number", "buckets"]
"""Ids that are integers or strings; numbers that enter as they are, or by the bucket that they fall into."""

MISSING = int(to_ids(""))
"""The id of a missing value, and what fills up the shorter lists of a batch."""
LONGEST_LIST = 64
"""So many values of a list are used; the others are left out."""


@dataclass(frozen=True)
class ClickColumn:
    """A column by its name. What the user has not said (None) is decided by the first values."""

    name: str
    kind: ColumnKind | None = None
    is_list: bool = False
    separator: str | None = None  # of lists that are written as text

    def __post_init__(self) -> None:
        if self.kind not in (None, *get_args(ColumnKind)):
            raise ValueError(
                f"column {self.name!r} is {self.kind!r}; it must be one of {', '.join(get_args(ColumnKind))}"
            )

    @classmethod
    def parse(cls, text: str) -> ClickColumn:
        """`device`, `zip:string`, `price:number`, `price:buckets`, `tags:list`, or `genres:|` with a separator."""
        name, colon, how = text.strip().rpartition(":")
        if not colon:
            return cls(how)
        if how in get_args(ColumnKind):
            return cls(name, kind=how)  # type: ignore[arg-type]
        if how == "list":
            return cls(name, is_list=True)
        if name and how and not re.search(r"\w", how):
            return cls(name, is_list=True, separator=how)
        raise ValueError(
            f"the column {text!r} is not understood; write its name, or name:kind with one of "
            f"{', '.join(get_args(ColumnKind))} or list, or name:separator for lists that are text, as in 'genres:|'"
        )

    @property
    def is_number(self) -> bool:
        """Does it hold numbers, and not ids?"""
        return self.kind in ("number", "buckets")

    @property
    def id_kind(self) -> Kind:
        """What its ids are."""
        return "string" if self.kind == "string" else "integer"

    def __str__(self) -> str:
        """As a user is told of it."""
        name = self.name if self.name.isprintable() else ascii(self.name)
        lists = f", lists by {self.separator!r}" if self.separator else ", lists"
        return f"`{name}` ({self.kind}{lists if self.is_list else ''})"

    def settings(self) -> dict[str, Any]:
        """Plain values that build it again."""
        return asdict(self)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> ClickColumn:
        """The column that a file describes. It may come from anyone, and is checked."""
        require_kinds(cls, settings)
        return cls(**settings)

    def decided(self, values: pl.Series) -> ClickColumn:
        """With what the first values show, where the user has not said it."""
        import polars as pl

        is_list = self.is_list or isinstance(values.dtype, (pl.List, pl.Array))
        own = replace(self, is_list=is_list)
        if own.is_list and own.is_number:
            raise DataError(f"column {self.name!r} has lists, and lists of numbers are not read; leave it out")
        return own if own.kind else replace(own, kind=_kind_of(_elements(values, own)))


def parse_columns(columns: str | Iterable[str] | Mapping[str, str | None]) -> tuple[ClickColumn, ...]:
    """Columns as a user names them: `"user,item,genres:|"`, a list of such names, or names with what each is."""
    if isinstance(columns, str):
        columns = columns.split(",")
    elif isinstance(columns, Mapping):
        columns = [f"{name}:{how}" if how else name for name, how in columns.items()]
    parsed = tuple(ClickColumn.parse(text) for text in columns)
    names = [column.name for column in parsed]
    if not names or not all(names):
        raise ValueError("no columns are named; give their names, such as columns='user,item,device'")
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"the column {min(repeated)!r} is named twice; name each column once")
    return parsed


def ids_in(values: pl.Series, column: ClickColumn, place: RowPlace) -> NDArray[np.int64]:
    """The id of each row; `MISSING` where there is no value."""
    import polars as pl

    from ..reading.batches import column_ids, filter_rows, is_missing

    values = _as_kind(values, column)
    has_value = ~is_missing(values)
    frame, place = filter_rows(values.alias("value").to_frame(), has_value, place)
    found = np.full(len(values), MISSING, np.int64)
    if not len(frame):
        return found
    if frame["value"].dtype.is_nested():
        raise DataError(
            f"{place(0)}: {frame['value'].head(1).to_list()[0]!r} (column {column.name!r}) is no single value"
        )
    if column.id_kind == "integer" and not (frame["value"].dtype.is_numeric() or frame["value"].dtype == pl.String):
        raise _no_integer(frame["value"], 0, column, place)
    try:
        ids = column_ids(frame["value"], column.name, kind=column.id_kind, place=place)
    except DataError as error:
        raise DataError(f"{error}. If it is a number and no id, write {column.name}:number") from None
    if ids is None:
        texts = frame["value"]
        row = int((~texts.str.contains(r"^-?[0-9]{1,19}(\.0*)?$")).arg_max() or 0)
        raise _no_integer(texts, row, column, place)
    found[has_value.to_numpy()] = ids
    return found


def lists_in(values: pl.Series, column: ClickColumn, place: RowPlace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ids of all lists, one after the other, and how many each list has. Missing elements are left out."""
    import polars as pl

    lists = _split(values, column, place).list.head(LONGEST_LIST)
    counts = lists.list.len().fill_null(0).to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(lists)), counts)
    flat = lists.filter(pl.Series(counts > 0)).explode()
    ids = ids_in(flat, column, lambda row: place(int(rows[row]) if row < len(rows) else 0))
    is_there = ids != MISSING
    return ids[is_there], np.bincount(rows[is_there], minlength=len(lists)).astype(np.int64)


def numbers_in(values: pl.Series, column: ClickColumn, place: RowPlace) -> NDArray[np.float32]:
    """The number of each row; NaN where there is none."""
    import polars as pl

    from ..reading.batches import filter_rows, is_missing, to_ratings

    has_value = ~is_missing(values)
    frame, place = filter_rows(values.alias("value").to_frame(), has_value, place)
    found = np.full(len(values), np.nan, np.float32)
    if not len(frame):
        return found
    own = frame["value"]
    own = own.cast(pl.UInt8) if own.dtype == pl.Boolean else own
    if not (own.dtype.is_numeric() or own.dtype == pl.String):
        raise DataError(f"{place(0)}: {own[0]!r} (column {column.name!r}) is no number; leave out ':number'")
    try:
        found[has_value.to_numpy()] = to_ratings(own, column.name, place).to_numpy()
    except DataError as error:
        raise DataError(str(error).replace("is not a rating; a rating is a number", "is not a number")) from None
    if not np.isfinite(found[has_value.to_numpy()]).all():
        raise DataError(f"{place(0)} and those after it: column {column.name!r} has an infinite number; replace it")
    return found


def _kind_of(values: pl.Series) -> ColumnKind:
    """Integers are ids; text is, too, unless all of it is numbers of which some have a fraction."""
    import polars as pl

    from ..reading.batches import is_missing

    values = values.filter(~is_missing(values))
    if values.dtype.is_integer() or values.dtype == pl.Boolean:
        return "integer"
    if values.dtype.is_float() or values.dtype == pl.Decimal:
        return "integer" if (values == values.floor()).all() else "number"
    if values.dtype != pl.String or not len(values):
        return "string"
    if values.str.contains(r"^(0|-?[1-9][0-9]{0,18})(\.0*)?$").all():
        return "integer"
    return "number" if values.str.contains(r"^-?(0|[1-9][0-9]*)?(\.[0-9]+)?([eE][-+]?[0-9]+)?$").all() else "string"


def _elements(values: pl.Series, column: ClickColumn) -> pl.Series:
    return _split(values, column, lambda row: f"row {row + 1}").explode() if column.is_list else values


def _split(values: pl.Series, column: ClickColumn, place: RowPlace) -> pl.Series:
    """Lists as polars has them, also of text with a separator."""
    import polars as pl

    if isinstance(values.dtype, pl.List):
        return values
    if isinstance(values.dtype, pl.Array):
        return values.arr.to_list()
    if values.dtype == pl.Null:
        return pl.Series(values.name, [None] * len(values), dtype=pl.List(pl.String))
    if column.separator is None or values.dtype not in (pl.String, pl.Categorical, pl.Enum):
        raise DataError(
            f"{place(0)}: column {column.name!r} has no lists, but {values.dtype}; leave out ':list', or say how they "
            f"are separated, as in '{column.name}:|'"
        )
    return values.cast(pl.String).str.split(column.separator).list.eval(pl.element().str.strip_chars())


def _as_kind(values: pl.Series, column: ClickColumn) -> pl.Series:
    """Numbers as text where the column's ids are strings, and truth as 0 and 1."""
    import polars as pl

    if values.dtype == pl.Boolean:
        values = values.cast(pl.Int64)
    if values.dtype == pl.Null:
        return values.cast(pl.String if column.id_kind == "string" else pl.Int64)
    if values.dtype == pl.Date or isinstance(values.dtype, (pl.Datetime, pl.Time)):
        return values.cast(pl.String)
    if column.id_kind == "string" and values.dtype.is_numeric():
        whole = values.dtype.is_float() and bool((values == values.floor()).all())
        return (values.cast(pl.Int64) if whole else values).cast(pl.String)
    return values


def _no_integer(values: pl.Series, row: int, column: ClickColumn, place: RowPlace) -> DataError:
    return DataError(
        f"{place(row)}: {values[row]!r} (column {column.name!r}) is no integer, as the values before it are; write "
        f"{column.name}:string if they are all strings"
    )
