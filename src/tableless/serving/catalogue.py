"""The items that can be recommended, the most popular first, and finding them by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .answers import ListedItem

if TYPE_CHECKING:
    import polars as pl


class Catalogue:
    """A run's list of items with their titles (by id, where there are any)."""

    def __init__(self, items: pl.DataFrame, titles: Mapping[int, str]) -> None:
        import polars as pl

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

    def matching(self, text: str, count: int) -> list[ListedItem]:
        """Items whose title holds the text or whose raw id begins with it, whatever the case; an empty text: any.

        The one whose id it is comes first.
        """
        import polars as pl

        wanted = text.strip().lower()
        matches = pl.col("item_text").str.starts_with(wanted) | pl.col("title_text").str.contains(wanted, literal=True)
        is_it = pl.col("item_text") == wanted
        in_order = self._items.lazy().filter(matches).sort(is_it, descending=True, maintain_order=True)
        found = in_order.head(count).select("item", "title", "actions").collect()
        return [ListedItem(*values) for values in found.iter_rows()]
