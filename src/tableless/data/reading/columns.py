"""Columns: which of a file's columns mean users, items, times and parts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..interactions import DataError
from .sniffing import find_layout, is_number

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


def guess_columns(
    file: Path,
    *,
    user_col: str | None = None,
    item_col: str | None = None,
    time_col: str | None = None,
    part_col: str | None = None,
) -> Columns:
    """The columns named, and for the others those that usually mean users, items and times.

    Times are optional; `time_col=""` leaves them out though the file has some. Parts are read only from a column that
    is named, and no times are guessed then. The columns of a file without a header are called column_1, column_2, …
    """
    given = [name for name in (user_col, item_col, time_col, part_col) if name]
    layout = find_layout(file, expected=given)
    nameless = layout.format == "text" and not layout.has_header
    guesses = _guess_by_place(layout.first_row) if nameless else guess_by_name(layout.names)
    guesses = {role: None if name in given else name for role, name in guesses.items()}
    user = user_col or guesses["user"]
    item = item_col or guesses["item"]
    time = (guesses["time"] if time_col is None and part_col is None else time_col) or None
    if user is None or item is None:
        role = "user" if user is None else "item"
        raise DataError(
            f"{file}: none of its columns is known to mean the {role}; say which does (--{role}-col, {role}_col): "
            f"{layout.listing}"
        )
    if len({user, item, time}) < 3:
        raise DataError(f"{file}: user, item and time must be three columns, not {user}, {item} and {time}")
    if part_col in {user, item, time} - {None}:
        raise DataError(f"{file}: the column {part_col!r} cannot say train or test: it has the users, items or times")
    columns = Columns(user, item, time, part_col)
    for name in columns.by_role.values():
        if layout.names.count(name) > 1:
            raise DataError(f"{file} has several columns called {name!r}; rename all but the one that is meant")
    return columns


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


def _guess_by_place(first_row: Sequence[str]) -> dict[str, str | None]:
    """Without a header: user, item, rating, time, as in MovieLens; Amazon's ratings of 2018 have the item first."""
    item_first = re.fullmatch("[0-9A-Z]{10}", first_row[0]) and re.fullmatch("A[0-9A-Z]{10,}", first_row[1])
    user, item = ("column_2", "column_1") if item_first else ("column_1", "column_2")
    time = None
    for place, least in ((3, 0.0), (2, 1e8)):  # a third column can be a rating as well
        if time is None and len(first_row) > place and is_number(first_row[place]) and float(first_row[place]) > least:
            time = f"column_{place + 1}"
    return {"user": user, "item": item, "time": time}
