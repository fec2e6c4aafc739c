"""What items are called: titles from a file of metadata."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..embedding.ids import to_ids
from ..recommender.interactions import Kind

if TYPE_CHECKING:
    import polars as pl

_TITLE_COLUMNS = ("title", "name", "item_name", "product_title", "movie_title", "book_title")


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
    import polars as pl
    import pyarrow.parquet as pq

    from ..recommender.reading.columns import find_column, guess_by_name
    from ..recommender.reading.file_formats import find_layout, one_line_errors, open_text, split_rows, to_frame

    layout = find_layout(path, expected=())
    if layout.format == "text" and not layout.has_header:
        with open_text(path, gzipped=layout.gzipped) as file:
            rows = [fields[:2] for _, fields in split_rows(_decode(file.read()), layout.separator)]
        return pl.DataFrame(rows, schema={"item": pl.String, "title": pl.String}, orient="row")
    item, title = guess_by_name(layout.names)["item"], find_column(layout.names, _TITLE_COLUMNS)
    if item is None or title is None:
        raise ValueError(f"{path} needs a column of item ids and a `title`; it has {layout.listing}")
    with one_line_errors(path):
        if layout.format == "parquet":
            frame = to_frame(pq.read_table(path, columns=[item, title]))  # polars would end with a damaged file
        elif layout.format == "json":
            frame = pl.scan_ndjson(path, infer_schema_length=None).select(item, title).collect()
        else:  # as strings: one odd value in some other column must not matter
            frame = pl.read_csv(path, columns=[item, title], separator=layout.separator, infer_schema=False)
    return frame.select(pl.col(item).alias("item"), pl.col(title).alias("title"))


def _decode(text: bytes) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError:
        return text.decode("latin-1")  # as the older MovieLens files are
