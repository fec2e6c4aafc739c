"""The rows of click data in memory: four bytes for each value, however long the strings in the file are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..interactions import DataError
from .columns import LONGEST_LIST, MISSING, ClickColumn, ids_in, lists_in, numbers_in

if TYPE_CHECKING:
    import polars as pl

TableRows = NDArray[np.int64]
"""Rows of a table, by their places in it."""


class ColumnData(ABC):
    """The values of one column."""

    @abstractmethod
    def inputs(self, rows: TableRows) -> Tensor:
        """What a model is fed for some rows, the first axis."""


@dataclass(frozen=True)
class IdData(ColumnData):
    """One id for each row."""

    ids: NDArray[np.int64]  # [values] the distinct ids
    codes: NDArray[np.int32]  # [rows] which of them

    def inputs(self, rows: TableRows) -> Tensor:
        """Int64 [n]."""
        return torch.from_numpy(self.ids[self.codes[rows]])


@dataclass(frozen=True)
class ListData(ColumnData):
    """A list of ids for each row."""

    ids: NDArray[np.int64]  # [values] the distinct ids
    codes: NDArray[np.int32]  # of all lists, one after the other
    starts: NDArray[np.int64]  # [rows + 1]

    def inputs(self, rows: TableRows) -> Tensor:
        """Int64 [n, longest], filled up with `MISSING`."""
        counts = self.starts[rows + 1] - self.starts[rows]
        return padded(self.ids[self.codes[self.places_of(rows)]], counts)

    def places_of(self, rows: TableRows) -> TableRows:
        """Where the ids of some rows stand among all codes."""
        counts = self.starts[rows + 1] - self.starts[rows]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(self.starts[rows], counts) + within


@dataclass(frozen=True)
class NumberData(ColumnData):
    """One number for each row."""

    values: NDArray[np.float32]  # [rows]; NaN where it is missing

    def inputs(self, rows: TableRows) -> Tensor:
        """Float32 [n]."""
        return torch.from_numpy(self.values[rows])


@dataclass(frozen=True)
class ClickTable:
    """All rows. Without labels every row is an action, and what did not happen is drawn from the item column."""

    columns: tuple[ClickColumn, ...]  # with their kinds
    data: Mapping[str, ColumnData]
    num_rows: int
    labels: NDArray[np.float32] | None  # [rows] 0 or 1
    times: NDArray[Any] | None  # [rows]
    item: str | None  # without labels: the column that negatives are drawn for
    of_item: frozenset[str] = frozenset()  # the columns that an item brings with it, and the item itself

    def inputs(self, rows: TableRows, item_rows: TableRows | None = None) -> dict[str, Tensor]:
        """What a model is fed: the columns of `rows`, but those of the item from `item_rows`."""
        own = rows if item_rows is None else item_rows
        return {name: data.inputs(own if name in self.of_item else rows) for name, data in self.data.items()}


def padded(ids: NDArray[np.int64], counts: TableRows) -> Tensor:
    """Ids of lists, one after the other, and the length of each list -> int64 [lists, longest]; at least one column."""
    longest = min(LONGEST_LIST, max(1, int(counts.max(initial=0))))
    filled = np.full((len(counts), longest), MISSING, np.int64)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    filled[np.repeat(np.arange(len(counts)), counts), within] = ids
    return torch.from_numpy(filled)


def to_inputs(values: Any, columns: Sequence[ClickColumn]) -> dict[str, Tensor]:
    """Raw values as a model is fed them: a frame, or a mapping with a list for each column; None is missing."""
    import polars as pl

    found: dict[str, Tensor] = {}
    for column in columns:
        try:
            own = values[column.name]
        except (KeyError, pl.exceptions.ColumnNotFoundError):
            raise DataError(
                f"the column {column.name!r} is not there; the model needs {', '.join(own.name for own in columns)} "
                "(None where a value is missing)"
            ) from None
        found[column.name] = _to_input(_series(own, column), column)
    lengths = {name: len(own) for name, own in found.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"the columns have different lengths: {', '.join(f'{own} {n}' for own, n in lengths.items())}")
    return found


def _to_input(values: pl.Series, column: ClickColumn) -> Tensor:
    def place(row: int) -> str:
        return f"row {row + 1}"

    if column.is_number:
        return torch.from_numpy(numbers_in(values, column, place))
    if column.is_list:
        return padded(*lists_in(values, column, place))
    if column.id_kind == "integer" and str(values.dtype) == "String":
        raise DataError(f"column {column.name!r} has integers in this model, and not strings; convert them first")
    return torch.from_numpy(ids_in(values, column, place))


def _series(values: Any, column: ClickColumn) -> pl.Series:
    import polars as pl

    if isinstance(values, pl.Series):
        return values
    if type(values).__module__.partition(".")[0] == "pandas":
        return pl.Series(pl.from_pandas(values))
    try:
        plain = values.tolist() if isinstance(values, (np.ndarray, Tensor)) else values
        return pl.Series(column.name, plain, dtype=pl.Float64 if column.is_number else None)
    except (TypeError, pl.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"column {column.name!r} needs a list of values of one kind ({reason})") from None


class Vocabulary:
    """Numbers distinct ids from 0, in the order in which they come: strings need not be kept for that."""

    def __init__(self) -> None:
        self._sorted = np.empty(0, np.int64)
        self._numbers = np.empty(0, np.int32)

    def codes(self, ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """The number of each id; new ids get the next numbers."""
        distinct, inverse = np.unique(ids, return_inverse=True)
        place = np.searchsorted(self._sorted, distinct)
        is_known = np.zeros(len(distinct), bool)
        inside = place < len(self._sorted)
        is_known[inside] = self._sorted[place[inside]] == distinct[inside]
        new = distinct[~is_known]
        if len(new):
            first = len(self._sorted)
            self._numbers = np.insert(
                self._numbers, place[~is_known], np.arange(first, first + len(new), dtype=np.int32)
            )
            self._sorted = np.insert(self._sorted, place[~is_known], new)
            place = np.searchsorted(self._sorted, distinct)
        return self._numbers[place][inverse]

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids in the order of their numbers."""
        ordered = np.empty(len(self._sorted), np.int64)
        ordered[self._numbers] = self._sorted
        return ordered
