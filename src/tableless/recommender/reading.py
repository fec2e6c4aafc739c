"""Reading interactions: which format a file has, which columns it means, and its rows as ids, batch by batch.

The content decides the format, not the name: parquet, JSON lines, or text with a separator (`,` `;` tab `|` or
MovieLens' `::`), with or without a header, gzipped or not.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ..embedding.ids import to_ids
from .interactions import DataError, Kind

try:
    import polars as pl
except ImportError as missing:
    raise ImportError("interactions are read by polars: pip install 'tableless[data]'") from missing

# What a column is called when it holds users, items or times: the first name that a file has is taken.
USER_COLUMNS = (
    *("user_id", "user", "uid", "user_idx", "reviewer_id", "visitor_id", "customer_id", "client_id", "member_id"),
    *("profile_id", "account_id", "person_id", "player_id", "reader_id", "reviewer", "customer", "visitor"),
    *("author_id", "username", "session_id"),
)
ITEM_COLUMNS = (
    *("item_id", "item", "iid", "item_idx", "parent_asin", "asin", "movie_id", "isbn", "click_article_id"),
    *("article_id", "news_id", "product_id", "business_id", "book_id", "video_id", "track_id", "song_id", "artist_id"),
    *("anime_id", "recipe_id", "game_id", "app_id", "ad_id", "post_id", "content_id", "sku", "movie", "book"),
    *("product", "article", "content"),
)
TIME_COLUMNS = (
    *("timestamp", "time", "ts", "unix_review_time", "click_timestamp", "event_time", "event_timestamp", "unix_time"),
    *("unix_timestamp", "rating_timestamp", "datetime", "date_time", "date", "created_at", "t"),
)
_SEPARATORS = ("::", "\t", ",", ";", "|")
_BLOCK_BYTES = 32 << 20
_LONGEST_ROW = 256 << 20
_HEAD_BYTES = 1 << 20
_BATCH_ROWS = 1 << 20

TimeKind = Literal["integer", "number", "datetime"]
Place = Callable[[int], str]  # where a row of a batch is: file and line


@dataclass(frozen=True)
class Columns:
    """The names of the columns that are read; `time` is None where the data has no order."""

    user: str
    item: str
    time: str | None

    def __str__(self) -> str:
        return f"user = {self.user}, item = {self.item}, time = {self.time or 'none'}"


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


@dataclass(frozen=True)
class Batch:
    """Some rows of a file, in order."""

    users: NDArray[np.int64]  # [rows] ids
    items: NDArray[np.int64]  # [rows]
    times: NDArray[np.int64] | NDArray[np.float64] | None  # [rows]
    item_names: pl.Series  # [rows] as the user wrote them


@dataclass(frozen=True)
class _Layout:
    """How a file is to be read."""

    path: Path
    format: Literal["parquet", "json", "text"]
    names: tuple[str, ...]  # of all columns
    gzipped: bool = False
    separator: str = ""  # of text
    has_header: bool = False
    first_row: tuple[Any, ...] = ()  # of text and JSON: what stands in each column

    @property
    def quotes(self) -> str | None:
        """The quote character of text; MovieLens has none."""
        return None if self.format == "json" or self.separator == "::" else '"'


def find_files(path: Path) -> list[Path]:
    """The file itself, or the parquet files of a directory in the order of their names."""
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if not path.is_dir():
        return [path]
    files = sorted(file for ending in ("*.parquet", "*.pq") for file in path.glob(ending))
    if not files:
        raise DataError(f"{path} is a directory without parquet files; name a file, or put *.parquet files into it")
    return files


def guess_columns(
    file: Path, *, user_col: str | None = None, item_col: str | None = None, time_col: str | None = None
) -> Columns:
    """The columns named, and for the others those that usually mean users, items and times.

    Times are optional; `time_col=""` leaves them out though the file has some. The columns of a file without a header
    are called column_1, column_2, …
    """
    layout = _layout(file, expected=[name for name in (user_col, item_col, time_col) if name])
    guessed = (
        _guess_by_place(layout.first_row)
        if layout.format == "text" and not layout.has_header
        else guess_by_name(layout.names)
    )
    taken = {name for name in (user_col, item_col, time_col) if name}
    user = user_col or _unless_taken(guessed["user"], taken)
    item = item_col or _unless_taken(guessed["item"], taken)
    time = (_unless_taken(guessed["time"], taken) if time_col is None else time_col) or None
    for role, name in (("user", user), ("item", item)):
        if name is None:
            raise DataError(
                f"{file}: none of its columns is known to mean the {role}; say which does (--{role}-col, {role}_col): "
                f"{_listed(layout.names)}"
            )
    assert user is not None
    assert item is not None
    if len({user, item, time}) < 3:
        raise DataError(f"{file}: user, item and time must be three columns, not {user}, {item} and {time}")
    return Columns(user, item, time)


def guess_by_name(names: Sequence[str]) -> dict[str, str | None]:
    """Which of the columns usually means the "user", which the "item" and which the "time"; None if none does."""
    usual = {"user": USER_COLUMNS, "item": ITEM_COLUMNS, "time": TIME_COLUMNS}
    return {role: find_column(names, wanted) for role, wanted in usual.items()}


def find_column(names: Sequence[str], wanted: Sequence[str]) -> str | None:
    """The first of the `wanted` columns that is among `names`, whatever its case, underscores and other signs."""
    by_plain = {_plain(name): name for name in reversed(names)}
    return next((by_plain[_plain(name)] for name in wanted if _plain(name) in by_plain), None)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def first_kinds(files: Sequence[Path], columns: Columns) -> Kinds:
    """The kinds of columns: certain for parquet, for text as the first row has them (see `KindsChanged`)."""
    kinds = None
    for file in files:
        layout = _layout(file, expected=_given(columns))
        if layout.format != "parquet":
            return kinds or _kinds_of_text(layout, columns)
        these = _kinds_of_parquet(layout, columns)
        if kinds is not None and these != kinds:
            raise DataError(
                f"{file} has {these.user} users, {these.item} items and {these.time} times, but the files before it "
                f"{kinds.user}, {kinds.item} and {kinds.time}; a column of ids has one kind"
            )
        kinds = these
    assert kinds is not None
    return kinds


def read_actions(file: Path, *, columns: Columns, kinds: Kinds) -> Iterator[Batch]:
    """All rows of a file, in order and in bounded memory. Raises `KindsChanged` if text turns out to be of another."""
    layout = _layout(file, expected=_given(columns))
    frames = _read_parquet if layout.format == "parquet" else _read_text
    for frame, place in frames(layout, columns):
        yield _to_batch(frame, columns, kinds=kinds, place=place)


def stream_actions(
    path: Path | str, *, columns: Columns, rank: int = 0, world_size: int = 1, batch_size: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Batches of (user ids, item ids) from one rank's share of parquet files: no pass over the data comes first.

    Shares are equal and contiguous ranges of all rows, so that every rank has as many batches as the others, give or
    take one; of the files, only the row groups that hold a rank's share are read. All batches but the last have
    `batch_size` rows.
    """
    if not 0 <= rank < world_size:
        raise DataError(f"rank must be in 0..{world_size - 1}, not {rank}")
    files = find_files(Path(path))
    kinds = first_kinds(files, replace(columns, time=None))
    sizes = [_num_rows(file) for file in files]
    first, last = sum(sizes) * rank // world_size, sum(sizes) * (rank + 1) // world_size
    left = [np.empty(0, np.int64), np.empty(0, np.int64)]
    for file, size in zip(files, sizes, strict=True):
        rows = (max(first, 0), min(last, size))
        first, last = first - size, last - size
        if rows[0] >= rows[1]:
            continue
        layout = _layout(file)
        for frame, place in _read_parquet(layout, replace(columns, time=None), rows=rows):
            batch = _to_batch(frame, replace(columns, time=None), kinds=kinds, place=place)
            left = [np.concatenate([left[0], batch.users]), np.concatenate([left[1], batch.items])]
            while len(left[0]) >= batch_size:
                yield left[0][:batch_size], left[1][:batch_size]
                left = [left[0][batch_size:], left[1][batch_size:]]
    if len(left[0]):
        yield left[0], left[1]


def _scan(file: Path) -> pl.LazyFrame:
    return pl.scan_parquet(file, glob=False, hive_partitioning=False)  # [1] in a name is no pattern


def _num_rows(file: Path) -> int:
    with open(file, "rb") as opened:
        if opened.read(4) != b"PAR1":
            raise DataError(f"{file} is not parquet, and only parquet can be streamed; write it as parquet first")
    with _one_line_errors(file):
        return int(_scan(file).select(pl.len()).collect().item())


# --- what a file is ---------------------------------------------------------------------------------------------------


def _layout(file: Path, *, expected: Sequence[str] = ()) -> _Layout:
    """`expected` are column names that the file must have; a first line with one of them is a header."""
    layout = _sniff(file, expected)
    for name in expected:
        if name not in layout.names:
            raise DataError(f"{file} has no column {name!r}; its columns are {_listed(layout.names)}")
    return layout


def _sniff(file: Path, expected: Sequence[str]) -> _Layout:
    if not file.exists():
        raise DataError(f"{file} does not exist")
    with open(file, "rb") as opened:
        magic = opened.read(4)
    if not magic:
        raise DataError(f"{file} is empty")
    if magic == b"PAR1":
        with _one_line_errors(file):
            return _Layout(file, "parquet", tuple(_scan(file).collect_schema().names()))
    if magic[:2] == b"PK":
        raise DataError(f"{file} is a zip archive; unpack it and name the file inside")
    gzipped = magic[:2] == b"\x1f\x8b"
    with _one_line_errors(file), _open_text(file, gzipped=gzipped) as text:
        head = text.read(_HEAD_BYTES)
    if not head.strip():
        raise DataError(f"{file} is empty")
    beginning = head.decode("utf-8-sig", "replace").lstrip("\r\n")
    if beginning.startswith("{"):
        return _json_layout(file, beginning, gzipped=gzipped)
    if beginning.startswith("["):
        raise DataError(f"{file} is one JSON array; write one object per line (JSON lines) instead")
    return _text_layout(file, beginning, gzipped=gzipped, expected=expected)


def _json_layout(file: Path, beginning: str, *, gzipped: bool) -> _Layout:
    try:
        first = json.loads(beginning.partition("\n")[0])
    except json.JSONDecodeError as error:
        raise DataError(f"{file}, line 1 is not JSON ({error}); JSON lines have one whole object per line") from None
    return _Layout(file, "json", tuple(first), gzipped=gzipped, first_row=tuple(first.values()))


def _text_layout(file: Path, beginning: str, *, gzipped: bool, expected: Sequence[str]) -> _Layout:
    line = beginning.partition("\n")[0]
    separator = max(_SEPARATORS, key=line.count)
    if not line.count(separator) or "\0" in line:
        raise DataError(f"{file} is not a known format: CSV, TSV, MovieLens ::, JSON lines, parquet, or gzip of these")
    rows = [tuple(fields) for _, fields in islice(_rows(beginning, separator), 2)]
    has_header = _is_header(rows[0], expected)
    if has_header and len(rows) == 1:
        raise DataError(f"{file} has a header and no rows")
    names = rows[0] if has_header else tuple(f"column_{place}" for place in range(1, len(rows[0]) + 1))
    return _Layout(file, "text", names, gzipped, separator, has_header, first_row=rows[-1 if has_header else 0])


def _rows(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The fields of each row that is not blank, and the number of its (last) line: for one block or less, slow."""
    if separator == "::":
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip("\r"):
                yield number, line.strip("\r").split("::")
        return
    reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=separator)
    try:
        yield from ((reader.line_num, fields) for fields in reader if fields)
    except csv.Error:  # a field too long for Python's reader; the caller has seen all rows before it
        return


def _is_header(fields: Sequence[str], expected: Sequence[str]) -> bool:
    return bool(set(expected) & set(fields)) or not any(map(_is_number, fields))


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _guess_by_place(first_row: Sequence[str]) -> dict[str, str | None]:
    """Without a header: user, item, rating, time, as in MovieLens; Amazon's ratings of 2018 have the item first."""
    item_first = re.fullmatch("[0-9A-Z]{10}", first_row[0]) and re.fullmatch("A[0-9A-Z]{10,}", first_row[1])
    user, item = ("column_2", "column_1") if item_first else ("column_1", "column_2")
    time = None
    for place, least in ((3, 0.0), (2, 1e8)):  # a third column can be a rating as well
        if time is None and len(first_row) > place and _is_number(first_row[place]) and float(first_row[place]) > least:
            time = f"column_{place + 1}"
    return {"user": user, "item": item, "time": time}


def _unless_taken(name: str | None, taken: set[str]) -> str | None:
    return None if name in taken else name


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:20])
    return shown if len(names) <= 20 else f"{shown}, … ({len(names)} in all)"


def _given(columns: Columns) -> list[str]:
    return [name for name in (columns.user, columns.item, columns.time) if name is not None]


# --- what its columns hold --------------------------------------------------------------------------------------------


def _kinds_of_text(layout: _Layout, columns: Columns) -> Kinds:
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
    return "integer" if re.fullmatch("-?[0-9]+", text) else "number" if _is_number(text) else "datetime"


def _kinds_of_parquet(layout: _Layout, columns: Columns) -> Kinds:
    schema = _scan(layout.path).collect_schema()

    def kind(name: str) -> Kind:
        dtype = schema[name]
        if dtype.is_integer():
            return "integer"
        if dtype in (pl.String, pl.Binary, pl.Categorical, pl.Enum):
            return "string"
        raise DataError(f"{layout.path}: column {name!r} is {dtype}, but ids are integers or strings; cast it first")

    time = None if columns.time is None else _kind_of_parquet_time(layout, columns.time, schema[columns.time])
    return Kinds(kind(columns.user), kind(columns.item), time)


def _kind_of_parquet_time(layout: _Layout, name: str, dtype: pl.DataType) -> TimeKind:
    if dtype.is_integer():
        return "integer"
    if dtype.is_numeric():
        return "number"
    if dtype in (pl.Date, pl.Datetime):
        return "datetime"
    if dtype == pl.String:
        first = _scan(layout.path).select(name).head(1).collect()
        return _kind_of_time(str(first.item())) if len(first) else "integer"
    raise DataError(f"{layout.path}: column {name!r} is {dtype}, which cannot be a time; give another as time_col")


# --- its rows ---------------------------------------------------------------------------------------------------------


def _read_parquet(
    layout: _Layout, columns: Columns, *, rows: tuple[int, int] | None = None
) -> Iterator[tuple[pl.DataFrame, Place]]:
    first, last = rows or (0, None)
    with _one_line_errors(layout.path):
        selected = _scan(layout.path).select(pl.col(name).alias(role) for role, name in _roles(columns))
        selected = selected.slice(first, None if last is None else last - first)
        for frame in selected.collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True):
            yield frame, partial(_row_of_parquet, layout.path, first)
            first += len(frame)


def _row_of_parquet(path: Path, before: int, row: int) -> str:
    return f"{path}, row {before + row + 1}"


def _read_text(layout: _Layout, columns: Columns) -> Iterator[tuple[pl.DataFrame, Place]]:
    for block in _blocks(layout):
        try:
            frame = block.parse(columns)
        except pl.exceptions.PolarsError as error:
            raise block.explain(error) from None
        yield frame, block.place


def _blocks(layout: _Layout) -> Iterator[_Block]:
    """Whole rows, some `_BLOCK_BYTES` at a time: polars alone would map the whole file."""
    lines_before, rest = 0, b""
    with _one_line_errors(layout.path), _open_text(layout.path, gzipped=layout.gzipped) as text:
        if layout.has_header:
            while not text.readline().strip(b"\r\n"):
                lines_before += 1
            lines_before += 1
        else:
            rest = text.read(len(BOM_UTF8)).removeprefix(BOM_UTF8)
        while data := text.read(_BLOCK_BYTES):
            data = rest + data
            end = _end_of_rows(data, quoted=layout.quotes is not None)
            if end:
                yield _Block(layout, data[:end], lines_before)
            lines_before += data.count(b"\n", 0, end)
            rest = data[end:]
            if len(rest) > _LONGEST_ROW:
                raise DataError(f"{layout.path}, line {lines_before + 1} does not end; is a quote left open in it?")
        if rest.strip():
            yield _Block(layout, rest, lines_before)


def _end_of_rows(data: bytes, *, quoted: bool) -> int:
    end = data.rfind(b"\n") + 1
    if quoted and data.count(b'"', 0, end) % 2:  # the last line feed lies within quotes: end before they open
        end = data.rfind(b"\n", 0, data.rfind(b'"', 0, end)) + 1
    return end


@contextmanager
def _open_text(path: Path, *, gzipped: bool) -> Iterator[BinaryIO]:
    with cast(BinaryIO, gzip.open(path, "rb") if gzipped else path.open("rb")) as file:
        yield file


@contextmanager
def _one_line_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (pl.exceptions.PolarsError, OSError, EOFError, zlib.error) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(f"{path} cannot be read: {reason}") from None


@dataclass(frozen=True)
class _Block:
    """Whole rows of a text or JSON lines file, small enough to be looked at in Python if something is wrong."""

    layout: _Layout
    data: bytes
    lines_before: int

    def parse(self, columns: Columns) -> pl.DataFrame:
        """The columns wanted, named by their roles, as strings."""
        if self.layout.format == "json":
            schema = {name: pl.String() for _, name in _roles(columns)}
            frame = pl.scan_ndjson(self.data, schema=schema).collect()
            return frame.select(pl.col(name).alias(role) for role, name in _roles(columns))
        # Places for names, so that a header may repeat one; polars checks rows against it only if it reads all of them.
        places = {role: self.layout.names.index(name) for role, name in _roles(columns)}
        separator = "\x1f" if self.layout.separator == "::" else self.layout.separator
        data = self.data.replace(b"::", b"\x1f") if self.layout.separator == "::" else self.data
        data = data.lstrip(b"\r\n")  # polars takes a blank line for a row
        data = re.sub(rb"\n(?:\r?\n)+", b"\n", data) if b"\n\n" in data or b"\n\r" in data else data
        header = separator.join(map(str, range(len(self.layout.names)))).encode()
        frame = pl.read_csv(
            header + b"\n" + data, separator=separator, quote_char=self.layout.quotes, infer_schema=False
        ).select(pl.col(str(place)).alias(role) for role, place in places.items())
        if any(frame.null_count().row(0)):
            self._refuse_ragged()
        return frame

    def place(self, row: int) -> str:
        """Where a row is in the file."""
        numbers = (number for number, _ in self._rows())
        return f"{self.layout.path}, line {self.lines_before + next(islice(numbers, row, None), 0)}"

    def explain(self, error: Exception) -> DataError:
        """What polars does not say: the line."""
        for number, line in enumerate(self.data.split(b"\n"), self.lines_before + 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return DataError(
                    f"{self.layout.path}, line {number} is not UTF-8; convert the file first (iconv -f latin1 -t utf-8)"
                )
        try:
            self._refuse_ragged()
        except DataError as ragged:
            return ragged
        for number, line in enumerate(self.data.split(b"\n"), self.lines_before + 1):
            if self.layout.quotes and line.count(b'"') % 2:
                return DataError(f"{self.layout.path}, line {number} has a quote that is not closed, or not doubled")
        reason = str(error).partition("\n")[0]
        return DataError(f"{self.layout.path}, in the lines from {self.lines_before + 1}: {reason}")

    def _refuse_ragged(self) -> None:
        path, width = self.layout.path, len(self.layout.names)
        for number, fields in self._rows():
            if self.layout.format == "json":
                try:
                    if isinstance(json.loads(fields[0]), dict):
                        continue
                    reason = "not an object"
                except json.JSONDecodeError as error:
                    reason = str(error)
                raise DataError(f"{path}, line {self.lines_before + number} is not a JSON object ({reason})")
            if len(fields) != width:
                line = self.lines_before + number
                raise DataError(f"{path}, line {line} has {len(fields)} fields, but the first line has {width}")

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        text = self.data.decode("utf-8-sig", "replace")
        if self.layout.format == "json":
            return ((number, [line]) for number, line in enumerate(text.split("\n"), 1) if line.strip())
        return _rows(text, self.layout.separator)


# --- and these as ids and times ---------------------------------------------------------------------------------------


def _to_batch(frame: pl.DataFrame, columns: Columns, *, kinds: Kinds, place: Place) -> Batch:
    for role, name in _roles(columns):
        missing = frame[role].is_null() | (frame[role] == "" if frame[role].dtype == pl.String else False)
        if missing.any():
            row = int(missing.arg_max() or 0)
            raise DataError(f"{place(row)}: the {role} (column {name!r}) is missing; drop such rows, or fill them")
    try:
        users, items = _ids(frame["user"], kinds.user), _ids(frame["item"], kinds.item)
    except ValueError as error:
        raise DataError(f"{place(0)} and those after it: {error}") from None
    if users is None or items is None:
        raise KindsChanged(
            replace(
                kinds, user="string" if users is None else kinds.user, item="string" if items is None else kinds.item
            )
        )
    times = None if columns.time is None else _times(frame["time"], columns.time, kinds=kinds, place=place)
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
    return to_ids(values).numpy()


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


def _roles(columns: Columns) -> list[tuple[str, str]]:
    named = [("user", columns.user), ("item", columns.item)]
    return named if columns.time is None else [*named, ("time", columns.time)]
