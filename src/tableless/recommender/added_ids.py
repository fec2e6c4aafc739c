"""Ids that are added to a run after its training, by their features: how rows are checked, and told to a model.

`RunDirectory` keeps them in files of JSON lines, one line for each call. The line is on the disk before the call
returns, and one that a kill has cut short is no line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.features.table import FeatureColumns
from ..embedding.described_ids import WithDescribedIds
from ..embedding.ids import to_ids
from ..files.whole import append_line, read_lines
from .features import SIDES, columns_of
from .models import Recommender

if TYPE_CHECKING:
    import polars as pl

    from .run_directory import Side

Row = dict[str, Any]


def as_rows(data: Any, columns: FeatureColumns, *, side: str, kind: str) -> list[Row]:
    """Rows in one form: `id`, then the features that are there.

    Args:
        data: A row (a dict), a list of them, or a frame (polars, pandas, Arrow).
        columns: The columns of the run.
        side: `"user"` or `"item"`, for messages.
        kind: What the raw ids of this side are: `"integer"` or `"string"`.

    Raises:
        ValueError: A row has no id, an id of the wrong kind, or a feature that is not understood.
    """
    rows = []
    for position, own in enumerate(_dicts(data)):
        given = {str(name): _plain(value) for name, value in own.items()}
        name = columns.id_name if columns.id_name in given else "id"
        place = f"row {position + 1}: " if position or isinstance(data, Sequence) else ""
        raw = given.pop(name, None)
        if raw is None:
            raise ValueError(f"{place}there is no id; give it as 'id' or {columns.id_name!r}")
        wanted = int if kind == "integer" else str
        if not isinstance(raw, wanted) or isinstance(raw, bool):
            raise ValueError(f"{place}{side} ids are {kind}s in this run's data, and this one is not")
        rows.append({"id": raw, **{name: value for name, value in given.items() if value is not None}})
    to_ids([row["id"] for row in rows])  # integers beyond 64 bits are refused here
    columns.encode_rows(rows)
    return rows


class AddedRows:
    """The file of one side. There is none before the first row is added."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, rows: Sequence[Row]) -> None:
        """Keep rows. They are on the disk when this returns."""
        append_line(self.path, {"rows": list(rows)})

    def read(self) -> list[Row]:
        """All rows in their order; of an id that was added several times, the last one."""
        lines = read_lines(self.path)
        rows = [row for line in lines for row in line.get("rows", ()) if isinstance(row, dict) and "id" in row]
        return list({row["id"]: row for row in rows}.values())

    def behind(self, items: pl.DataFrame) -> pl.DataFrame:
        """A run's list of items, with those that were added behind the others; nobody has counted their actions."""
        import polars as pl

        names = pl.Series("item", [row["id"] for row in self.read()], items.schema["item"])
        more = pl.DataFrame({"item": names, "id": to_ids(names).numpy()})
        more = more.filter(~pl.col("id").is_in(items["id"].implode()))
        return pl.concat([items, more], how="diagonal") if len(more) else items


def describe_ids(model: Recommender, config: Mapping[str, Any], side: Side, rows: Sequence[Row]) -> None:
    """Give a model the rows of one side, so that it answers for their ids."""
    if not rows:
        return
    scheme = getattr(model, SIDES[side])
    columns = columns_of(config, side)
    assert isinstance(scheme, WithDescribedIds), "a run with features has such schemes"
    scheme.add([row["id"] for row in rows], columns.encode_rows(rows))


def _dicts(data: Any) -> list[Mapping[str, Any]]:
    if isinstance(data, Mapping):
        return [data]
    if hasattr(data, "__arrow_c_stream__"):
        import polars as pl
        import pyarrow as pa

        data = data.to_dicts() if isinstance(data, pl.DataFrame) else pa.table(data).to_pylist()
    if not isinstance(data, (list, tuple)) or not all(isinstance(row, Mapping) for row in data):
        raise ValueError("give a row (a dict with an id and features), a list of them, or a frame")
    return list(data)


def _plain(value: Any) -> Any:
    """A value as JSON has it. What is no number in a frame is missing."""
    if hasattr(value, "tolist"):  # of numpy or torch
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return [_plain(own) for own in value] if isinstance(value, (list, tuple)) else value
