"""Columns: which of a file's columns hold the users, the items, the times and the ratings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..config import RowRules
from ..interactions import DataError
from .values import Layout, is_number

# What a column is called when it holds users, items, times or ratings: the first name that a file has is taken.
USER_COLUMNS = (
    *("user_id", "user", "uid", "user_idx", "reviewer_id", "visitor_id", "customer_id", "client_id", "member_id"),
    *("profile_id", "account_id", "person_id", "player_id", "reader_id", "reviewer", "customer", "visitor"),
    *("author_id", "username", "session_id"),
)
ITEM_COLUMNS = (
    *("item_id", "item", "iid", "item_idx", "parent_asin", "asin", "movie_id", "isbn", "click_article_id"),
    *("article_id", "news_id", "product_id", "business_id", "book_id", "video_id", "track_id", "song_id", "artist_id"),
    *("anime_id", "recipe_id", "game_id", "app_id", "ad_id", "post_id", "content_id", "sku", "movie", "book"),
    *("product", "article", "content", "stock_code", "product_code", "item_code"),
)
TIME_COLUMNS = (
    *("timestamp", "time", "ts", "unix_review_time", "click_timestamp", "event_time", "event_timestamp", "unix_time"),
    *("unix_timestamp", "rating_timestamp", "datetime", "date_time", "date", "created_at", "t", "invoice_date", "when"),
)
RATING_COLUMNS = (
    *("rating", "ratings", "score", "stars", "star_rating", "overall", "user_rating", "review_rating", "book_rating"),
    *("review_score", "rate", "grade"),
)
_LIKE_A_TIME = re.compile("date|time|stamp")  # within a name


@dataclass(frozen=True)
class Columns:
    """The names of the columns that are read; `time` is None where the data has no order."""

    user: str
    item: str
    time: str | None
    part: str | None = None  # says of each row whether it is for training, validation or test
    rating: str | None = None  # only where it decides which rows count

    def __str__(self) -> str:
        last = f"time = {self.time or 'none'}" if self.part is None else f"part = {self.part}"
        rating = "" if self.rating is None else f", rating = {self.rating}"
        return f"user = {self.user}, item = {self.item}, {last}{rating}"

    @property
    def by_role(self) -> dict[str, str]:
        """The names of "user", "item" and, if there are, "time", "part" and "rating"."""
        named = {"user": self.user, "item": self.item, "time": self.time, "part": self.part, "rating": self.rating}
        return {role: name for role, name in named.items() if name is not None}


def choose_columns(
    layout: Layout,
    *,
    user_col: str | None,
    item_col: str | None,
    time_col: str | None,
    part_col: str | None,
    rules: RowRules,
) -> Columns:
    """Those that are named, and of the others those that usually mean the user, the item, the time or the rating."""
    given = {name for name in (user_col, item_col, time_col, part_col, rules.rating_col) if name}
    guesses = {role: None if name in given else name for role, name in _guess(layout).items()}
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
    if rules.date_format is not None and time is None and part_col is None and time_col is None:
        raise DataError(
            f"{layout.path}: none of its columns is known to mean the time, which --date-format (date_format) is for; "
            f"say which does (--time-col, time_col): {layout.listing}"
        )
    columns = Columns(user, item, time, part_col, _rating(layout, rules, guesses["rating"]))
    if columns.rating in {user, item, time, part_col} - {None}:
        raise DataError(f"{layout.path}: the column {columns.rating!r} cannot be the rating: it is another column too")
    for name in columns.by_role.values():
        if layout.names.count(name) > 1:
            raise DataError(f"{layout.path} has several columns called {name!r}; rename all but the one that is meant")
    return columns


def _rating(layout: Layout, rules: RowRules, guess: str | None) -> str | None:
    if rules.min_rating is None:
        return None
    if rules.rating_col is None and guess is None:
        raise DataError(
            f"{layout.path}: none of its columns is known to mean the rating, which --min-rating (min_rating) is for; "
            f"say which does (--rating-col, rating_col): {layout.listing}"
        )
    return rules.rating_col or guess


def unused_columns(layout: Layout, columns: Columns, *, wants_time: bool) -> tuple[str, ...]:
    """Remarks about columns that a user may have forgotten: ratings, and times where none are read."""
    remarks = []
    used = columns.by_role.values()
    rating = _guess(layout)["rating"]
    if columns.rating is None and rating is not None and rating not in used:
        remarks.append(
            f"there is a column `{rating}`; every row counts as a choice. --min-rating 4, for instance, would keep "
            "only the rows with 4 or more"
        )
    if wants_time and columns.time is None:
        names = (name for name in layout.names if name not in used)
        time = next((name for name in names if _LIKE_A_TIME.search(name.lower()) or layout.has_dates(name)), None)
        if time is not None:
            remarks.append(f"`{time}` looks like a time, and is not used; --time-col {time} would order the actions")
    return tuple(remark if remark.isprintable() else ascii(remark) for remark in remarks)


def _guess(layout: Layout) -> dict[str, str | None]:
    if not layout.has_names:
        return _guess_by_place(layout.first_row)
    return guess_by_name(layout.names) | {"rating": find_column(layout.names, RATING_COLUMNS)}


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
    has_rating = time == "column_4" and is_number(first_row[2])
    return {"user": user, "item": item, "time": time, "rating": "column_3" if has_rating else None}
