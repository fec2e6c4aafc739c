"""Files of actions: one look decides what they are, which columns are meant and what these hold.

The format is told by the content and not by the file's name. To add one: write a module with its `Layout`, and
recognise it in `_recognise`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..interactions import DataError
from .json_lines import sniff_json
from .parquet import MAGIC, sniff_parquet
from .text import read_beginning, sniff_separated
from .values import ActionBatch, Kinds, Layout, is_number, to_batch

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


@dataclass(frozen=True)
class Columns:
    """The names of the columns that are read; `time` is None where the data has no order."""

    user: str
    item: str
    time: str | None
    part: str | None = None  # says of each row whether it is for training, validation or test

    def __str__(self) -> str:
        last = f"time = {self.time or 'none'}" if self.part is None else f"part = {self.part}"
        return f"user = {self.user}, item = {self.item}, {last}"

    @property
    def by_role(self) -> dict[str, str]:
        """The names of "user", "item" and, if there is one, "time" or "part"."""
        named = {"user": self.user, "item": self.item, "time": self.time, "part": self.part}
        return {role: name for role, name in named.items() if name is not None}


@dataclass(frozen=True)
class ActionFiles:
    """Files that are read alike, and all that was decided about them: whoever reads them or reports on them asks here.

    The kinds of parquet are certain. Those of text are as in its first row: see `KindsChanged`.
    """

    layouts: tuple[Layout, ...]  # one for each file
    columns: Columns
    kinds: Kinds

    def __str__(self) -> str:
        """What a user is told about the decisions."""
        return f"{self.layouts[0].path}: {self.columns}"

    @property
    def paths(self) -> list[Path]:
        """Where the files are."""
        return [layout.path for layout in self.layouts]

    def read(self, layout: Layout) -> Iterator[ActionBatch]:
        """All rows of one of the files, in order and in bounded memory. Raises `KindsChanged` for text."""
        names = self.columns.by_role
        for frame, place in layout.read(names):
            yield to_batch(frame, names, kinds=self.kinds, place=place)


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


def sniff(
    files: Sequence[Path],
    *,
    user_col: str | None = None,
    item_col: str | None = None,
    time_col: str | None = None,
    part_col: str | None = None,
) -> ActionFiles:
    """Look at each file once. The columns are those of the first file, and the others must have them too.

    Columns that are not named are guessed. Times are optional; `time_col=""` leaves them out though the file has some.
    Parts are read only from a column that is named, and no times are guessed then.
    """
    first = find_layout(files[0], expected=[name for name in (user_col, item_col, time_col, part_col) if name])
    columns = _choose_columns(first, user_col, item_col, time_col, part_col)
    names = columns.by_role
    layouts = (first, *(find_layout(file, expected=names.values()) for file in files[1:]))
    kinds = first.kinds(names)
    for layout in layouts[1:]:
        if layout.has_types and (these := layout.kinds(names)) != kinds:
            raise DataError(
                f"{layout.path} has {these.user} users, {these.item} items and {these.time} times, but the files "
                f"before it {kinds.user}, {kinds.item} and {kinds.time}; a column of ids has one kind"
            )
    return ActionFiles(layouts, columns, kinds if part_col is None else replace(kinds, time="part"))


def find_layout(file: Path, *, expected: Collection[str]) -> Layout:
    """What a file is. `expected` are names of columns that it must have."""
    layout = _recognise(file, expected)
    for name in expected:
        if name not in layout.names:
            raise DataError(f"{file} has no column {name!r}; its columns are {layout.listing}")
    return layout


def _recognise(file: Path, expected: Collection[str]) -> Layout:
    if not file.exists():
        raise DataError(f"{file} does not exist")
    with open(file, "rb") as opened:
        magic = opened.read(4)
    if not magic:
        raise DataError(f"{file} is empty")
    if magic == MAGIC:
        return sniff_parquet(file)
    if magic[:2] == b"PK":
        raise DataError(f"{file} is a zip archive; unpack it and name the file inside")
    gzipped = magic[:2] == b"\x1f\x8b"
    beginning = read_beginning(file, gzipped=gzipped)
    if beginning.startswith(("{", "[")):
        return sniff_json(file, beginning, gzipped=gzipped)
    return sniff_separated(file, beginning, gzipped=gzipped, expected=expected)


def _choose_columns(
    layout: Layout, user_col: str | None, item_col: str | None, time_col: str | None, part_col: str | None
) -> Columns:
    given = {name for name in (user_col, item_col, time_col, part_col) if name}
    guesses = guess_by_name(layout.names) if layout.has_names else _guess_by_place(layout.first_row)
    guesses = {role: None if name in given else name for role, name in guesses.items()}
    user = user_col or guesses["user"]
    item = item_col or guesses["item"]
    time = (guesses["time"] if time_col is None and part_col is None else time_col) or None
    if user is None or item is None:
        role = "user" if user is None else "item"
        raise DataError(
            f"{layout.path}: none of its columns is known to mean the {role}; say which does (--{role}-col, "
            f"{role}_col): {layout.listing}"
        )
    if len({user, item, time}) < 3:
        raise DataError(f"{layout.path}: user, item and time must be three columns, not {user}, {item} and {time}")
    if part_col in {user, item, time} - {None}:
        raise DataError(
            f"{layout.path}: the column {part_col!r} cannot say train or test: it has the users, items or times"
        )
    columns = Columns(user, item, time, part_col)
    for name in columns.by_role.values():
        if layout.names.count(name) > 1:
            raise DataError(f"{layout.path} has several columns called {name!r}; rename all but the one that is meant")
    return columns


def guess_by_name(names: Sequence[str]) -> dict[str, str | None]:
    """Which of the columns usually means the "user", which the "item" and which the "time"; None if none does."""
    usual = {"user": USER_COLUMNS, "item": ITEM_COLUMNS, "time": TIME_COLUMNS}
    return {role: find_column(names, wanted) for role, wanted in usual.items()}


def find_column(names: Sequence[str], wanted: Sequence[str]) -> str | None:
    """The first of the `wanted` columns that is among `names`; only letters and digits count, in any case."""
    by_plain = {_plain(name): name for name in reversed(names)}
    return next((by_plain[_plain(name)] for name in wanted if _plain(name) in by_plain), None)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _guess_by_place(first_row: Sequence[str]) -> dict[str, str | None]:
    """Without a header: user, item, rating, time, as in MovieLens; Amazon's ratings of 2018 have the item first."""
    item_first = re.fullmatch("[0-9A-Z]{10}", first_row[0]) and re.fullmatch("A[0-9A-Z]{10,}", first_row[1])
    user, item = ("column_2", "column_1") if item_first else ("column_1", "column_2")
    time = None
    for place, least in ((3, 0.0), (2, 1e8)):  # a third column can be a rating as well
        if time is None and len(first_row) > place and is_number(first_row[place]) and float(first_row[place]) > least:
            time = f"column_{place + 1}"
    return {"user": user, "item": item, "time": time}


def stream_actions(
    files: ActionFiles, *, rank: int = 0, world_size: int = 1, batch_size: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Batches of (user ids, item ids) from one rank's share of parquet files: no pass over the data comes first.

    Shares are equal and contiguous ranges of all rows, so that every rank has as many batches as the others, give or
    take one; of the files, only the row groups that hold a rank's share are read. All batches but the last have
    `batch_size` rows.
    """
    if not 0 <= rank < world_size:
        raise DataError(f"rank must be in 0..{world_size - 1}, not {rank}")
    names = {"user": files.columns.user, "item": files.columns.item}
    sizes = [layout.count_rows() for layout in files.layouts]
    first, last = sum(sizes) * rank // world_size, sum(sizes) * (rank + 1) // world_size
    users, items = np.empty(0, np.int64), np.empty(0, np.int64)
    for layout, size in zip(files.layouts, sizes, strict=True):
        rows = (max(first, 0), min(last, size))
        first, last = first - size, last - size
        if rows[0] >= rows[1]:
            continue
        for frame, place in layout.read(names, rows=rows):
            batch = to_batch(frame, names, kinds=files.kinds, place=place)
            users, items = np.concatenate([users, batch.users]), np.concatenate([items, batch.items])
            while len(users) >= batch_size:
                yield users[:batch_size], items[:batch_size]
                users, items = users[batch_size:], items[batch_size:]
    if len(users):
        yield users, items
