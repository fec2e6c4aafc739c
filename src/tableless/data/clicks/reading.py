"""Reading clicks: a file block by block, of which only numbers are kept. Which column is what is decided and told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...files.scheme_directory import require_kinds
from ..config import RowRules
from ..interactions import DataError, Report
from ..loading import find_data
from ..world import World
from .columns import ClickColumn, ids_in, lists_in, numbers_in
from .table import ClickTable, ColumnData, IdData, ListData, NumberData, Vocabulary

if TYPE_CHECKING:
    import polars as pl

    from ..reading.values import Kinds, Layout, RowPlace, TimeKind

_LABEL, _TIME = "label", "time"


@dataclass(frozen=True)
class ClickConfig:
    """Which rows, which columns, and what a model is to say of them: what a user says before anything is read."""

    data: str
    columns: tuple[ClickColumn, ...]
    label: str | None = None  # None: every row is an action, and negatives are drawn
    item_col: str | None = None  # without a label: the column that negatives are drawn for
    item_columns: tuple[str, ...] = ()  # what an item brings with it
    time_col: str | None = None  # "": there is none
    rules: RowRules = field(default_factory=RowRules)
    data_dir: str | None = None

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        for name in (self.item_col, *self.item_columns):
            if name and name not in names:
                raise ValueError(f"{name!r} is not among the columns ({', '.join(names)}); name it there, too")
        if self.label in names:
            raise ValueError(f"the label {self.label!r} cannot be a column as well: the model would be told the answer")
        if self.label and (self.item_col or self.item_columns):
            raise ValueError("with a label no negatives are drawn; leave out item_col and item_columns")
        if self.label is None and self.rules.min_rating is not None:
            raise ValueError("min_rating turns ratings into labels of 0 and 1; name their column by label='rating'")

    def settings(self) -> dict[str, Any]:
        """Plain values that build it again."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("rules", "columns")}
        columns = [column.settings() for column in self.columns]
        return {**own, "columns": columns, "item_columns": list(self.item_columns), "rules": self.rules.given()}

    @classmethod
    def from_settings(cls, settings: Any) -> ClickConfig:
        """What a run's config says. It may come from anyone, and is checked."""
        if not isinstance(settings, dict) or not {"data", "columns"} <= settings.keys():
            raise ValueError("the run's config.json does not say which data it was trained on (`data`)")
        values = {name: value for name, value in settings.items() if name not in ("columns", "rules", "item_columns")}
        require_kinds(cls, values)
        rules = settings.get("rules", {})
        require_kinds(RowRules, rules)
        return cls(
            **values,
            columns=tuple(ClickColumn.from_settings(column) for column in settings["columns"]),
            item_columns=tuple(map(str, settings.get("item_columns", ()))),
            rules=RowRules(**rules),
        )


def read_clicks(config: ClickConfig, *, report: Report | None = None) -> ClickTable:
    """All rows of the data. `report` is told which columns are read, and as what."""
    if (world := World.parse(config.data)) is not None:
        return _of_world(world, config)
    from ..reading.columns import ITEM_COLUMNS, find_column
    from ..reading.files import find_layout
    from ..reading.values import KindsChanged

    files = find_data(config.data, data_dir=config.data_dir, report=report)
    names = [column.name for column in config.columns]
    wanted = [*names, *filter(None, (config.label, config.time_col))]
    layouts = [find_layout(file, expected=wanted) for file in files]
    time = _time_column(layouts[0], config)
    item = None if config.label else config.item_col or find_column(names, ITEM_COLUMNS)
    if config.label is None and item is None:
        raise ValueError(
            "there is no label, and it is not known for which column negatives are drawn; name the label "
            "(label='clicked'), or the column of the items (item_col='item')"
        )
    kinds: Kinds | None = None
    while True:
        reader = _Reader(config, time, kinds)
        try:
            for layout in layouts:
                reader.read(layout, report)
            break
        except KindsChanged as changed:  # a date has shown whether the day or the month is first
            kinds = changed.kinds
    return reader.table(item, str(files[0]), report)


def _time_column(layout: Layout, config: ClickConfig) -> str | None:
    from ..reading.columns import TIME_COLUMNS, find_column

    if config.time_col is not None:
        return config.time_col or None
    used = {config.label, *(column.name for column in config.columns)}
    return find_column([name for name in layout.names if name not in used], TIME_COLUMNS)


class _Reader:
    """Collects what is kept of each block: codes, numbers, labels and times."""

    def __init__(self, config: ClickConfig, time: str | None, kinds: Kinds | None) -> None:
        self._config, self._time, self._kinds = config, time, kinds
        self._columns: tuple[ClickColumn, ...] | None = None
        self._vocabularies = {column.name: Vocabulary() for column in config.columns}
        self._parts: dict[str, list[NDArray[Any]]] = {column.name: [] for column in config.columns}
        self._lengths: dict[str, list[NDArray[np.int64]]] = {column.name: [] for column in config.columns}
        self._labels: list[NDArray[np.float32]] = []
        self._times: list[NDArray[Any]] = []
        self._num_rows = self._dropped = 0

    def read(self, layout: Layout, report: Report | None) -> None:
        """All rows of a file, in bounded memory but for what is kept."""
        roles = {_role(place): column.name for place, column in enumerate(self._config.columns)}
        for role, name in ((_LABEL, self._config.label), (_TIME, self._time)):
            roles |= {role: name} if name else {}
        note = None if report is None else lambda text: report(text, None, None)
        for frame, place in layout.read(roles, note=note):
            frame, place = self._with_values(frame, roles, place)
            self._add(frame, place)
            if report is not None:
                report("reading", self._num_rows, None)

    def table(self, item: str | None, source: str, report: Report | None) -> ClickTable:
        """All that was read."""
        from ..reading.values import refuse_open_dates

        if self._columns is None or not self._num_rows:
            raise DataError(f"{source} has no rows")
        if self._kinds is not None:
            refuse_open_dates(self._kinds, source)
        if report is not None:
            answer = f"label `{self._config.label}`" if self._config.label else f"negatives are drawn for `{item}`"
            when = f", time `{self._time}`" if self._time else ""
            report(f"{source}: {', '.join(map(str, self._columns))}; {answer}{when}", None, None)
            if self._dropped:
                report(f"dropped {self._dropped:,} rows without a label or a time", None, None)
        return ClickTable(
            self._columns,
            {column.name: self._data(column) for column in self._columns},
            self._num_rows,
            np.concatenate(self._labels) if self._labels else None,
            np.concatenate(self._times) if self._times else None,
            item,
            frozenset() if item is None else frozenset({item, *self._config.item_columns}),
        )

    def _data(self, column: ClickColumn) -> ColumnData:
        parts = np.concatenate(self._parts[column.name])
        if column.is_number:
            return NumberData(parts)
        ids = self._vocabularies[column.name].ids
        if not column.is_list:
            return IdData(ids, parts)
        return ListData(ids, parts, np.concatenate([[0], *self._lengths[column.name]]).cumsum().astype(np.int64))

    def _with_values(
        self, frame: pl.DataFrame, roles: dict[str, str], place: RowPlace
    ) -> tuple[pl.DataFrame, RowPlace]:
        """The rows that have a label and a time. Columns may have missing values."""
        from ..reading.batches import filter_rows, is_missing

        for role in (_LABEL, _TIME):
            if role not in frame.columns or not (missing := is_missing(frame[role])).any():
                continue
            if not self._config.rules.drop_missing:
                raise DataError(
                    f"{place(int(missing.arg_max() or 0))}: the {role} (column {roles[role]!r}) is missing; drop such "
                    "rows (--drop-missing, in Python drop_missing=True), or fill them"
                )
            self._dropped += int(missing.sum())
            frame, place = filter_rows(frame, ~missing, place)
        return frame, place

    def _add(self, frame: pl.DataFrame, place: RowPlace) -> None:
        if not len(frame):
            return
        if self._columns is None:
            named = enumerate(self._config.columns)
            self._columns = tuple(column.decided(frame[_role(number)]) for number, column in named)
        for number, column in enumerate(self._columns):
            values, parts = frame[_role(number)], self._parts[column.name]
            if column.is_number:
                parts.append(numbers_in(values, column, place))
            elif column.is_list:
                ids, lengths = lists_in(values, column, place)
                parts.append(self._vocabularies[column.name].codes(ids))
                self._lengths[column.name].append(lengths)
            else:
                parts.append(self._vocabularies[column.name].codes(ids_in(values, column, place)))
        if self._config.label:
            self._labels.append(_labels(frame[_LABEL], self._config, place))
        if self._time:
            self._times.append(self._times_of(frame[_TIME], self._time, place))
        self._num_rows += len(frame)

    def _times_of(self, values: pl.Series, name: str, place: RowPlace) -> NDArray[Any]:
        from ..reading.values import Kinds, kind_by_format, look_for_order, to_times

        date_format = self._config.rules.date_format
        if self._kinds is None:
            kind = _kind_of_times(values) if date_format is None else kind_by_format(date_format)
            self._kinds = Kinds("integer", "integer", kind)
        look_for_order(values, name, self._kinds)
        return to_times(values, name, kinds=self._kinds, place=place, date_format=date_format)


def _kind_of_times(values: pl.Series) -> TimeKind:
    """As the first rows have them."""
    import polars as pl

    from ..reading.values import kind_of_time

    if values.dtype.is_numeric():
        return "integer" if values.dtype.is_integer() else "number"
    return "datetime" if values.dtype in (pl.Date, pl.Datetime) else kind_of_time(str(values[0]))


def _role(number: int) -> str:
    return f"column {number}"


def _labels(values: pl.Series, config: ClickConfig, place: RowPlace) -> NDArray[np.float32]:
    """0 and 1: as they are written, or as the threshold makes them of ratings."""
    numbers = numbers_in(values, ClickColumn(config.label or "", "number"), place)
    if config.rules.min_rating is not None:
        return (numbers >= config.rules.min_rating).astype(np.float32)
    wrong = (numbers != 0) & (numbers != 1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            f"{place(row)}: the label {values[row]!r} (column {config.label!r}) is neither 0 nor 1; for a rating say "
            "the lowest that counts as a choice, such as --min-rating 4 (min_rating=4)"
        )
    return numbers


def _of_world(world: World, config: ClickConfig) -> ClickTable:
    """The synthetic world: the columns user and item, actions in the order of their times."""
    actions = world.interactions()
    given = {"user": (actions.user_ids, actions.user_rows()), "item": (actions.item_ids, actions.items)}
    names = [column.name for column in config.columns]
    if config.label or not set(names) <= given.keys():
        raise DataError(f"the world has the columns user and item and no labels; asked for are {', '.join(names)}")
    data = {name: IdData(np.array(given[name][0]), np.array(given[name][1], np.int32)) for name in names}
    columns: Sequence[ClickColumn] = [replace(column, kind="integer") for column in config.columns]
    times = None if config.time_col == "" else actions.times
    if "item" not in names:
        raise DataError("negatives are drawn for the world's column item; name it among the columns")
    return ClickTable(tuple(columns), data, actions.num_actions, None, times, "item", frozenset({"item"}))
