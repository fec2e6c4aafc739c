"""Reading features from a file: which columns, what each is taken for, and which rows count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...hints import did_you_mean, require_choice
from ..interactions import DataError, Kind
from .column import Column, FeatureKind
from .number_columns import NumberColumn, VectorColumn, as_number
from .table import KINDS, FeatureColumns, FeatureTable, as_raw_ids, ids_of
from .word_columns import CategoryColumn, TagsColumn

if TYPE_CHECKING:
    import polars as pl

_SEPARATORS = ("|", ";", ",")
_GUESSED_SEPARATORS = ("|", ";")  # a comma may as well be part of a name
_FEW_INTEGERS = 32  # whole numbers with so few different values are codes: an occupation, a genre
_ENOUGH = 0.95  # of the texts of a column must be numbers, for it to be one
_OFTEN = 0.1  # of the texts of a column must have a separator, for it to be tags
_MISSING = ("", "nan", "null")  # texts that say that there is nothing
_DISTINCT, _MANY = 0.5, 100  # a text that hardly ever repeats, in so many rows, says nothing of other ids


@dataclass(frozen=True)
class FeatureSource:
    """A file and the columns that are wanted of it, each with its kind if that is said; None: they are guessed."""

    path: Path
    wanted: dict[str, FeatureKind | None] | None

    @classmethod
    def parse(cls, text: str) -> FeatureSource:
        """From `items.parquet`, `items.csv:genres,author` or `items.csv:genres=tags,year=number`."""
        path, colon, columns = text.rpartition(":")
        if not colon or Path(text).exists():
            return cls(Path(text), None)
        wanted: dict[str, FeatureKind | None] = {}
        for part in columns.split(","):
            name, equals, kind = part.strip().rpartition("=")
            name, kind = (name, kind) if equals else (kind, "")
            if equals:
                require_choice(f"the kind of {name}", kind, KINDS)
            if not name:
                raise DataError(f"{text!r} names no column between its commas; write FILE:genres,author")
            wanted[name] = kind or None  # type: ignore[assignment]
        return cls(Path(path), wanted)


def read_features(
    source: str, *, side: str, kind: Kind, id_col: str | None = None, note: Callable[[str], None] = lambda text: None
) -> FeatureTable:
    """Read the features of users or of items (`side`), and learn its columns.

    Args:
        source: A file, as `FeatureSource.parse` takes it.
        side: `"user"` or `"item"`.
        kind: What the raw ids of this side are in the interactions.
        id_col: The column of the ids; guessed from common names.
        note: Is told which columns were taken for what, which were left out, and which rows do not count.

    Returns:
        The table. If an id occurs several times, its last row counts.

    Raises:
        DataError: The file or a column cannot be used.
    """
    parsed = FeatureSource.parse(source)
    frame, id_name = _read(parsed, side, id_col)
    names = frame[id_name]
    frame = frame.filter(names.is_not_null())
    if dropped := len(names) - len(frame):
        note(f"{parsed.path}: {dropped:,} rows without {side} ids were dropped")
    names = as_raw_ids(frame[id_name], kind=kind, side=side, source=str(parsed.path))
    frame = frame.with_columns(names.alias(id_name))
    unique = frame.unique(id_name, keep="last", maintain_order=True)
    if repeated := len(frame) - len(unique):
        note(f"{parsed.path}: {repeated:,} rows repeat {side} ids; the last of each counts")
    values = {name: unique[name].to_list() for name in unique.columns if name != id_name}
    columns = FeatureColumns(id_name, tuple(_learn(unique, values, parsed, note)))
    if not columns.columns:
        raise DataError(
            f"{parsed.path} has no column that tells something of the {side}s; name those to use, as in "
            f"{parsed.path.name}:genres,year"
        )
    note(f"{side} features of {len(unique):,} {side}s: {columns.summary}")
    return FeatureTable(columns, unique[id_name], ids_of(unique[id_name]), columns.encode(values, len(unique)))


def _read(parsed: FeatureSource, side: str, id_col: str | None) -> tuple[pl.DataFrame, str]:
    """The columns that are wanted, as they are called in the file, and the name of the ids' column."""
    from ..reading.columns import guess_by_name
    from ..reading.files import find_layout

    layout = find_layout(parsed.path, expected=[name for name in (id_col,) if name])
    if not layout.has_names:
        raise DataError(f"{parsed.path} does not name its columns; features need a header, or a parquet file")
    id_name = id_col or guess_by_name(layout.names)[side] or ("id" if "id" in layout.names else None)
    if id_name is None:
        raise DataError(
            f"{parsed.path}: none of its columns is known to mean the {side}; call it {side}_id: {layout.listing}"
        )
    wanted = list(layout.names) if parsed.wanted is None else list(parsed.wanted)
    for name in wanted:
        if name not in layout.names:
            raise DataError(
                f"{parsed.path} has no column {name!r}; its columns are {layout.listing}"
                f"{did_you_mean(name, layout.names)}"
            )
    names = dict.fromkeys([id_name, *wanted])
    return layout.read_whole({name: name for name in names}), id_name


def _learn(
    frame: pl.DataFrame, values: dict[str, list[Any]], parsed: FeatureSource, note: Callable[[str], None]
) -> list[Column]:
    """The columns that can be used. Those that were not asked for by name may be left out, with a word on why."""
    columns: list[Column] = []
    for name, own in values.items():
        said = (parsed.wanted or {}).get(name)
        kind, why_not = (said, None) if said else guess_kind(frame[name])
        if why_not is not None and parsed.wanted is None:
            note(f"{parsed.path}: {name} is not used: {why_not}")
            continue
        columns.append(_learn_column(name, own, kind or "category"))
    return columns


def _learn_column(name: str, values: Sequence[Any], kind: FeatureKind) -> Column:
    if kind == "tags":
        separator = _separator(values, _GUESSED_SEPARATORS) or _separator(values, _SEPARATORS)
        return TagsColumn.learn(name, values, separator or "|")
    if kind == "category":
        return CategoryColumn.learn(name, values)
    return NumberColumn.learn(name, values) if kind == "number" else VectorColumn.learn(name, values)


def guess_kind(column: pl.Series) -> tuple[FeatureKind | None, str | None]:
    """What a column seems to hold, and, where it says nothing of other ids, why it is better left out."""
    import polars as pl

    there = column.drop_nulls()
    dtype = there.dtype
    if isinstance(dtype, (pl.List, pl.Array)):
        return ("vector" if dtype.inner.is_numeric() else "tags"), None
    if dtype == pl.Boolean or isinstance(dtype, (pl.Categorical, pl.Enum)):
        return "category", None
    if dtype.is_numeric():
        there = there.drop_nans() if dtype.is_float() else there
        is_code = there.n_unique() <= _FEW_INTEGERS and (dtype.is_integer() or bool((there == there.round()).all()))
        return ("category" if is_code else "number"), None
    if dtype != pl.String:
        return None, f"values of type {dtype} are not understood; make them numbers or texts"
    texts = there.filter(~there.str.strip_chars().str.to_lowercase().is_in(_MISSING))
    if not len(texts):
        return None, "it has no values"
    numbers = [number for text in texts if (number := as_number(text)) is not None]
    if len(numbers) >= _ENOUGH * len(texts):
        is_code = len(set(numbers)) <= _FEW_INTEGERS and all(number.is_integer() for number in numbers)
        return ("category" if is_code else "number"), None
    if _separator(texts.to_list(), _GUESSED_SEPARATORS):
        return "tags", None
    if len(texts) >= _MANY and texts.n_unique() > _DISTINCT * len(texts):
        return "category", "nearly every row has a text of its own (name the column to use it anyway)"
    return "category", None


def _separator(values: Sequence[Any], candidates: Sequence[str]) -> str | None:
    """The separator that most texts have; None if hardly any has one."""
    texts = [value for value in values if isinstance(value, str)]
    counts = {mark: sum(mark in text for text in texts) for mark in candidates}
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] > _OFTEN * len(texts) else None
