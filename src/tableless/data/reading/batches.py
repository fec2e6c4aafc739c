"""Batches: rows as they stand in a file → those that count, as ids, times, parts and names.

Rows without a value are refused or dropped, as the rules say. Rows with a low rating are dropped.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ...embedding.ids import to_ids
from ..config import RowRules
from ..interactions import DataError, Kind, Part
from .values import Kinds, KindsChanged, Names, RowPlace, look_for_order, to_times

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
class ActionBatch:
    """Some rows of a file, in order."""

    users: NDArray[np.int64]  # [rows] ids
    items: NDArray[np.int64]  # [rows]
    times: NDArray[np.int64] | NDArray[np.float64] | None  # [rows]; in a given split each row's `Part`
    item_names: pl.Series  # [rows] as the user wrote them
    dropped: Counter[str] = field(default_factory=Counter)  # how many rows don't count, by the reason


def to_batch(
    frame: pl.DataFrame,
    names: Names,
    *,
    kinds: Kinds,
    place: RowPlace,
    rules: RowRules = RowRules(),  # noqa: B008
) -> ActionBatch:
    """The ids and times of a frame from `Layout.read`. Raises `KindsChanged` if text is of another kind."""
    if "time" in names:
        look_for_order(frame["time"], names["time"], kinds)  # a row that does not count can still tell
    frame, place, dropped = _keep_rows(frame, names, rules=rules, place=place)
    users = column_ids(frame["user"], names["user"], kind=kinds.user, place=place)
    items = column_ids(frame["item"], names["item"], kind=kinds.item, place=place)
    if users is None or items is None:
        user_kind: Kind = "string" if users is None else kinds.user
        item_kind: Kind = "string" if items is None else kinds.item
        raise KindsChanged(replace(kinds, user=user_kind, item=item_kind))
    times: NDArray[np.int64] | NDArray[np.float64] | None = None
    if "part" in names:
        times = _parts(frame["part"], names["part"], place=place)
    elif "time" in names:
        times = to_times(frame["time"], names["time"], kinds=kinds, place=place, date_format=rules.date_format)
    return ActionBatch(users, items, times, _item_names(frame["item"]), dropped)


def dropped_in_words(dropped: Counter[str]) -> list[str]:
    """A remark for each reason."""
    return [f"dropped {count:,} {'row' if count == 1 else 'rows'} {reason}" for reason, count in dropped.items()]


def _keep_rows(
    frame: pl.DataFrame, names: Names, *, rules: RowRules, place: RowPlace
) -> tuple[pl.DataFrame, RowPlace, Counter[str]]:
    """The rows that count, where each of them is in the file, and how many were dropped for which reason."""
    dropped: Counter[str] = Counter()
    for role, name in names.items():
        missing = is_missing(frame[role], nan_too=role != "time" or rules.drop_missing)
        if not missing.any():
            continue
        if not rules.drop_missing:
            raise DataError(
                f"{place(int(missing.arg_max() or 0))}: the {role} (column {name!r}) is missing; drop such rows "
                "(--drop-missing, in Python drop_missing=True), or fill them"
            )
        dropped[f"without {'an' if role == 'item' else 'a'} {role}"] += int(missing.sum())
        frame, place = filter_rows(frame, ~missing, place)
    if "rating" in names and rules.min_rating is not None:
        low = to_ratings(frame["rating"], names["rating"], place) < rules.min_rating
        if low.any():
            dropped[f"with a rating below {rules.min_rating:g}"] += int(low.sum())
            frame, place = filter_rows(frame, ~low, place)
    return frame, place, dropped


def is_missing(values: pl.Series, *, nan_too: bool = True) -> pl.Series:
    """Which rows have no value: null, an empty string, or NaN."""
    missing = values.is_null()
    if values.dtype == pl.String:
        missing |= (values == "").fill_null(False)
    if values.dtype.is_float() and nan_too:  # so pandas and numpy write a number that is missing
        missing |= values.is_nan().fill_null(False)
    return missing


def filter_rows(frame: pl.DataFrame, keep: pl.Series, place: RowPlace) -> tuple[pl.DataFrame, RowPlace]:
    """The rows to keep, and where each of them is in the file."""
    rows = np.flatnonzero(keep.to_numpy())
    return frame.filter(keep), lambda row: place(int(rows[row]) if row < len(rows) else row)


def to_ratings(values: pl.Series, name: str, place: RowPlace) -> pl.Series:
    """Numbers, also where they are written as text with a comma. No value may be missing."""
    if values.dtype == pl.String:
        values = values.str.strip_chars().str.replace(",", ".", literal=True)  # 4,5 is 4.5 in many countries
    numbers = values.cast(pl.Float64, strict=False)
    bad = numbers.is_null() | numbers.is_nan()
    if bad.any():
        row = int(bad.arg_max() or 0)
        raise DataError(f"{place(row)}: {values[row]!r} (column {name!r}) is not a rating; a rating is a number")
    return numbers


def _item_names(raw: pl.Series) -> pl.Series:
    """Strings as they are; bytes as text, or in hexadecimal where they are no text."""
    if raw.dtype == pl.Binary:
        return raw.cast(pl.String, strict=False).fill_null(raw.bin.encode("hex"))
    return raw if raw.dtype.is_integer() else raw.cast(pl.String)


def column_ids(values: pl.Series, name: str, *, kind: Kind, place: RowPlace) -> NDArray[np.int64] | None:
    """The ids of a column without missing values. None if text that was taken for integers holds something else."""
    if kind == "string" and values.dtype.is_numeric():
        raise DataError(
            f"{place(0)} and those after it: {values.name} ids are integers here, and strings in the other file; give "
            "both the same kind"
        )
    if values.dtype == pl.String and kind == "integer":
        integers = _text_to_integers(values, name, place)
        if integers is None:
            return None
        values = integers
    elif values.dtype.is_float():
        values = _floats_to_integers(values, name, place)
    try:
        return to_ids(values).numpy()
    except ValueError as error:
        raise DataError(f"{place(0)} and those after it: {error}") from None


def _text_to_integers(values: pl.Series, name: str, place: RowPlace) -> pl.Series | None:
    integers = values.cast(pl.Int64, strict=False)
    if (integers.cast(pl.String) == values).all(ignore_nulls=False):
        return integers
    whole = values.str.replace(r"^(-?[0-9]+)\.0*$", "$1")  # pandas writes 17850.0 if other rows have no value
    integers = whole.cast(pl.Int64, strict=False)
    other = ~integers.cast(pl.String).eq_missing(whole)
    if other.any() and whole.filter(other).str.contains(r"^-?[0-9]+\.[0-9]+$").all():
        raise _fraction(values, name, int(other.arg_max() or 0), place)
    return None if other.any() else integers


def _floats_to_integers(values: pl.Series, name: str, place: RowPlace) -> pl.Series:
    """pandas makes floats of integers if some are missing."""
    fraction = (values != values.floor()) | values.is_infinite()
    if fraction.any():
        raise _fraction(values, name, int(fraction.arg_max() or 0), place)
    inexact = values.abs() > 2.0 ** (24 if values.dtype == pl.Float32 else 53)
    if inexact.any():
        row = int(inexact.arg_max() or 0)
        raise DataError(
            f"{place(row)}: {values[row]!r} (column {name!r}) is an id as a {values.dtype}, which has lost its last "
            "digits; write such ids as integers or strings"
        )
    return values.cast(pl.Int64)


def _fraction(values: pl.Series, name: str, row: int, place: RowPlace) -> DataError:
    return DataError(
        f"{place(row)}: {values[row]!r} (column {name!r}) is a number with a fraction, but ids are integers or "
        "strings; is it the right column?"
    )


def _parts(values: pl.Series, name: str, *, place: RowPlace) -> NDArray[np.int64]:
    said = values.cast(pl.String).str.strip_chars().str.to_lowercase()
    parts = said.replace_strict(_PARTS, default=None, return_dtype=pl.Int64)
    if parts.null_count():
        row = int(parts.is_null().arg_max() or 0)
        raise DataError(f"{place(row)}: {values[row]!r} (column {name!r}) must be one of {', '.join(_PARTS)}")
    return parts.to_numpy()
