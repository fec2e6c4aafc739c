"""The columns of a side together, and a table of features: ids, and for each of them a row of numbers.

What was learned from the file goes with the run (`FeatureColumns.describe`), so that a new row can be encoded later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...embedding.ids import to_ids
from ...hints import did_you_mean
from ..interactions import DataError
from .column import Column, FeatureRows
from .number_columns import NumberColumn, VectorColumn
from .word_columns import CategoryColumn, TagsColumn

if TYPE_CHECKING:
    import polars as pl

KINDS: dict[str, type[CategoryColumn | TagsColumn | NumberColumn | VectorColumn]] = {
    each.kind: each for each in (CategoryColumn, TagsColumn, NumberColumn, VectorColumn)
}


@dataclass(frozen=True)
class FeatureColumns:
    """The columns of users or of items. `id_name` is the column of their ids."""

    id_name: str
    columns: tuple[Column, ...]

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        return sum(column.width for column in self.columns)

    @property
    def names(self) -> list[str]:
        """The names of the columns, without that of the ids."""
        return [column.name for column in self.columns]

    @property
    def summary(self) -> str:
        """What a user is told: each column, and what it was taken for."""
        return ", ".join(column.summary for column in self.columns)

    def encode(self, values: Mapping[str, Sequence[Any]], count: int) -> FeatureRows:
        """The values of each column [count] -> float32 [count, width]. A column that is not there is missing."""
        parts = [column.encode(values.get(column.name, [None] * count)) for column in self.columns]
        return np.concatenate(parts, axis=1) if parts else np.zeros((count, 0), np.float32)

    def encode_rows(self, rows: Sequence[Mapping[str, Any]]) -> FeatureRows:
        """Rows such as a caller gives them -> float32 [rows, width].

        A name that is no column, or a value of another kind, is refused; a column may be left out or None.
        """
        for position, row in enumerate(rows):
            if (problem := self._problem(row)) is not None:
                raise ValueError(f"row {position + 1}: {problem}" if len(rows) > 1 else problem)
        return self.encode({name: [row.get(name) for row in rows] for name in self.names}, len(rows))

    def _problem(self, row: Mapping[str, Any]) -> str | None:
        known = {column.name: column for column in self.columns}
        for name, value in row.items():
            if name in (self.id_name, "id", "title") and name not in known:  # a title is shown, and tells nothing
                continue
            if name not in known:
                listed = ", ".join(self.names)
                return f"there is no feature {name!r}; the features are {listed}{did_you_mean(name, known)}"
            if value is not None and (problem := known[name].problem(value)) is not None:
                return f"{name}: {problem}"
        return None

    def describe(self) -> dict[str, Any]:
        """Plain values that make the same columns again."""
        columns = [{"kind": column.kind, **asdict(column)} for column in self.columns]  # type: ignore[call-overload]
        as_json = [
            {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()} for own in columns
        ]
        return {"id": self.id_name, "columns": as_json}

    @classmethod
    def from_description(cls, description: Any) -> FeatureColumns:
        """The columns that were described."""
        try:
            columns = [_column_from(own) for own in description["columns"]]
            return cls(str(description["id"]), tuple(columns))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the run's config.json does not describe its features: {error!r}") from None


def _column_from(description: Mapping[str, Any]) -> Column:
    own = dict(description)
    kind: Callable[..., Column] = KINDS[own.pop("kind")]
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in own.items()})


@dataclass(frozen=True)
class FeatureTable:
    """Features of users or of items: a row for each id, which occurs once."""

    columns: FeatureColumns
    names: pl.Series  # [n] raw ids
    ids: NDArray[np.int64]  # [n]
    rows: FeatureRows  # [n, columns.width]

    def of(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.bool_], FeatureRows]:
        """Which of some ids have features, and their rows: [n] and [as many as have some, width]."""
        order = np.argsort(self.ids)
        place = np.searchsorted(self.ids, ids, sorter=order).clip(max=max(0, len(order) - 1))
        if not len(order):
            return np.zeros(len(ids), np.bool_), self.rows
        found = order[place]
        there = self.ids[found] == ids
        return there, self.rows[found[there]]

    def without(self, ids: NDArray[np.int64]) -> FeatureTable:
        """The rows of all other ids."""
        others = ~np.isin(self.ids, ids)
        return FeatureTable(self.columns, self.names.filter(others), self.ids[others], self.rows[others])


def as_raw_ids(values: pl.Series, *, kind: str, side: str, source: str) -> pl.Series:
    """Raw ids in the kind that the interactions have. Others are refused."""
    import polars as pl

    ids = values.cast(pl.Int64, strict=False) if kind == "integer" else values.cast(pl.String)
    if ids.null_count():
        first = values.filter(ids.is_null())[0]
        raise DataError(f"{source}: {side} ids are integers in the interactions, and here is {first!r}")
    return ids


def ids_of(names: pl.Series) -> NDArray[np.int64]:
    """The ids of raw ids."""
    return np.asarray(to_ids(names).numpy(), np.int64)
