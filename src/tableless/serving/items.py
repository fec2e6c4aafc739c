"""What is known about items: which a user has had (`SeenItems`), their titles, how to find them (`Catalogue`).

At the end, the answers about items that a trained model gives.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..data.config import DataConfig, recorded_data
from ..data.interactions import Interactions, Kind, Rows
from ..data.loading import load_interactions
from ..data.splits import Split
from ..embedding.ids import find, to_ids
from ..recommender.measurement import require_same_kinds
from ..recommender.run_directory import StoredRun

if TYPE_CHECKING:
    import polars as pl

_TITLE_COLUMNS = ("title", "name", "item_name", "product_title", "movie_title", "book_title", "description")


class SeenItems:
    """The items of each user of some interactions, as rows of a run's list of items.

    `held_out` are more actions of the same users and items: their rows of users, which ascend, and of items.
    """

    def __init__(
        self, interactions: Interactions, item_ids: Tensor, *, held_out: Sequence[tuple[Rows, Rows]] = ()
    ) -> None:
        # New users stand behind the known ones in a split, so that the ids need not ascend with the rows.
        self.user_ids, self._user_rows = torch.sort(torch.from_numpy(np.array(interactions.user_ids)))
        self.interactions = interactions
        self._starts, self._items, self._held_out = interactions.starts, interactions.items, list(held_out)
        listed, row = torch.sort(item_ids)
        position, known = find(torch.from_numpy(np.array(interactions.item_ids)), listed)
        self._row_of_item = torch.where(known, row[position], -1)  # -1: an item that is not recommended anyway

    def rows(self, user: int) -> Tensor:
        """The distinct rows of the items of a user (an id); none for a user who is not in the interactions."""
        place, known = find(torch.tensor(user), self.user_ids)
        if not known:
            return torch.empty(0, dtype=torch.int64)
        user_row = int(self._user_rows[place])
        items = [self._items[self._starts[user_row] : self._starts[user_row + 1]]]
        for users, their_items in self._held_out:
            start, stop = np.searchsorted(users, [user_row, user_row + 1])
            items.append(their_items[start:stop])
        rows = self._row_of_item[torch.from_numpy(np.unique(np.concatenate(items)).astype(np.int64))]
        return rows[rows >= 0]


def seen_config(source: str | os.PathLike[str], config: Mapping[str, Any]) -> DataConfig:
    """How `source` is read. All its actions count, whatever their time."""
    recorded = recorded_data(config)
    return DataConfig(
        os.fspath(source),
        data_dir=recorded.data_dir,
        user_col=recorded.user_col,
        item_col=recorded.item_col,
        time_col="",  # all actions count, whatever their time and rating
        drop_missing=True,  # a row without a user or an item says nothing about what anyone has seen
    )


def read_seen(source: str | os.PathLike[str], config: Mapping[str, Any], item_ids: Tensor) -> SeenItems:
    """From a file, a directory or a known dataset; columns are called as in the data that the run was trained on."""
    named = seen_config(source, config)
    interactions = load_interactions(
        named.data,
        data_dir=named.data_dir,
        user_col=named.user_col,
        item_col=named.item_col,
        time_col=named.time_col,
        rules=named.row_rules,
    )
    require_same_kinds(config, interactions, os.fspath(source))
    return SeenItems(interactions, item_ids)


def seen_in_data(run: StoredRun, read: DataConfig, parts: Split) -> SeenItems:
    """The actions of the data that a run was trained on, held out or not.

    Those of a test file are not in it: they may be recommended.
    """
    item_ids = to_ids(run.listed("item")["id"])
    # Of the late actions of a user only the first are in the split, and none with a low rating: read it again.
    if read.split == "global-time" or read.min_rating is not None:
        return read_seen(read.data, run.config, item_ids)
    held_out = [(parts.validation_users, parts.validation_items)]
    if read.test is None:
        held_out.append((parts.test_users, parts.test_items))
    return SeenItems(parts.train, item_ids, held_out=held_out)


def read_titles(path: Path, *, kind: Kind) -> dict[int, str]:
    """Titles by id, from a CSV, TSV, JSON lines or parquet file, or from MovieLens' own (`movies.dat`, `u.item`).

    The columns are told by their names; in a file without a header the first holds the items, the second their titles.
    `kind` says what the items' raw ids are.
    """
    import polars as pl

    table = _read(path).drop_nulls().unique("item", keep="first", maintain_order=True)
    items = table["item"].cast(pl.Int64, strict=False) if kind == "integer" else table["item"].cast(pl.String)
    if items.null_count():
        first = table["item"].filter(items.is_null())[0]
        raise ValueError(f"item ids are integers in this run's data; {path} has {first!r}")
    return dict(zip(to_ids(items).tolist(), table["title"].cast(pl.String), strict=True))


def _read(path: Path) -> pl.DataFrame:
    """The columns `item` and `title`."""
    from ..data.reading.columns import find_column, guess_by_name
    from ..data.reading.files import find_layout

    layout = find_layout(path, expected=())
    if not layout.has_names:
        return layout.read_whole({"item": layout.names[0], "title": layout.names[1]})
    item, title = guess_by_name(layout.names)["item"], find_column(layout.names, _TITLE_COLUMNS)
    if item is None or title is None:
        raise ValueError(f"{path} needs a column of item ids and a `title`; it has {layout.listing}")
    return layout.read_whole({"item": item, "title": title})


class Catalogue:
    """A run's list of items, the most popular first, with their titles (by id, where there are any)."""

    def __init__(self, items: pl.DataFrame, titles: Mapping[int, str]) -> None:
        import polars as pl

        self.titles = titles
        self._ids = items["id"]
        actions = pl.col("actions") if "actions" in items.columns else pl.lit(None, pl.Int64).alias("actions")
        names = pl.Series("title", [titles.get(id) for id in items["id"]], pl.String)
        self._items = (
            items.with_columns(actions, names)
            .with_row_index("row")
            .sort("actions", descending=True, nulls_last=True, maintain_order=True)
            .select(
                "row",
                "item",
                "title",
                "actions",
                pl.col("item").cast(pl.String).str.to_lowercase().alias("item_text"),
                pl.col("title").str.to_lowercase().fill_null("").alias("title_text"),
            )
        )

    def most_popular(self, count: int) -> list[int]:
        """Rows of the run's list."""
        return self._items["row"].head(count).to_list()

    def title_of_row(self, row: int) -> str | None:
        """The title of an item, by its row in the run's list."""
        return self.titles.get(self._ids[row]) if self.titles else None

    def matching(self, text: str, count: int) -> list[ListedItem]:
        """Items whose title holds the text or whose raw id begins with it, in any case; an empty text finds all.

        An item whose id is the text comes first.
        """
        import polars as pl

        wanted = text.strip().lower()
        matches = pl.col("item_text").str.starts_with(wanted) | pl.col("title_text").str.contains(wanted, literal=True)
        is_the_id = pl.col("item_text") == wanted
        in_order = self._items.lazy().filter(matches).sort(is_the_id, descending=True, maintain_order=True)
        found = in_order.head(count).select("item", "title", "actions").collect()
        return [ListedItem(*values) for values in found.iter_rows()]


@dataclass(frozen=True)
class Recommendation:
    """An item for a user; the score is a logit."""

    item: int | str
    score: float
    title: str | None


@dataclass(frozen=True)
class Neighbor:
    """An id whose vector points in a similar direction; `similarity` is the cosine between the two."""

    id: int | str
    similarity: float
    title: str | None


@dataclass(frozen=True)
class ListedItem:
    """An item that can be recommended; `actions` says how often it was chosen in training, if that was counted."""

    item: int | str
    title: str | None
    actions: int | None


@dataclass(frozen=True)
class MapPoint:
    """An item's place on the map."""

    item: int | str
    x: float
    y: float
    title: str | None
