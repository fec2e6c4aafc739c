"""Click data with several columns: actions joined with what is known, as a file that the library reads."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tableless.data.clicks.columns import parse_columns
from tableless.data.clicks.reading import ClickConfig, read_clicks
from tableless.data.clicks.split import ClickSplit, split_clicks
from tableless.data.config import RowRules
from tableless.data.loading import find_data
from tableless.data.world import World

if TYPE_CHECKING:
    import polars as pl

_CORE = 5


@dataclass(frozen=True)
class ClickSource:
    """How a dataset becomes clicks. Rows for validation and test are drawn: by time, most late news would be new."""

    title: str
    columns: str
    every: int  # one user in so many: a run would take more than two minutes otherwise
    label: str | None = None
    min_rating: float | None = None
    item_columns: tuple[str, ...] = ()


SOURCES = {
    "bookcrossing": ClickSource(
        "Book-Crossing 5-core, every sixth user: books, two drawn ones each",
        "user_id,item_id,author,publisher,location,age:buckets",
        every=6,
        item_columns=("author", "publisher"),
    ),
    "globo": ClickSource(
        "Globo, every thirtieth user: clicks, two drawn articles each",
        "user_id,item_id,environment,device_group,os,country,region,referrer_type",
        every=30,
    ),
    "movielens-1m": ClickSource(
        "ML-1M, every third user: four stars or more?",
        "user_id,item_id,genres:|,year,gender,age,occupation,zip",
        every=3,
        label="rating",
        min_rating=4,
    ),
}


@functools.lru_cache(maxsize=1)
def click_split(data: str) -> tuple[ClickConfig, ClickSplit]:
    """A dataset by its name, or a world (its columns are user, item and device), read and split."""
    with tempfile.TemporaryDirectory(prefix="tableless-") as folder:
        if (world := World.parse(data)) is not None:
            frame, source = _of_world(world), ClickSource(data, "user,item,device", every=1)
        else:
            source = SOURCES[data]
            frame = _joined(data, source)
        path = Path(folder) / "clicks.parquet"
        frame.write_parquet(path)
        config = ClickConfig(
            str(path),
            parse_columns(source.columns),
            label=source.label,
            item_columns=source.item_columns,
            time_col="",
            rules=RowRules(min_rating=source.min_rating),
        )
        return config, split_clicks(read_clicks(config))


def _joined(data: str, source: ClickSource) -> pl.DataFrame:
    """Actions of some users, with what is known of users and items where that lies in files beside them."""
    import polars as pl

    paths = find_data(data)
    frame = pl.concat([pl.read_parquet(path) for path in paths])
    if data == "bookcrossing":
        frame = _core(frame)
    frame = frame.filter(pl.col("user_id").rank("dense") % source.every == 0)
    for side in ("item", "user"):
        path = paths[0].with_name(f"{paths[0].stem}-{side}s.parquet")
        if path.exists():
            known = pl.read_parquet(path).unique(f"{side}_id", maintain_order=True)
            frame = frame.join(known, on=f"{side}_id", how="left", maintain_order="left")
    if data == "movielens-1m":
        frame = frame.with_columns(year=pl.col("title").str.extract(r"\((\d{4})\)"))
    wanted = [column.name for column in parse_columns(source.columns)]
    return frame.select(*wanted, *filter(None, [source.label]))


def _core(frame: pl.DataFrame) -> pl.DataFrame:
    """Only users and items with five actions or more."""
    import polars as pl

    before = -1
    while len(frame) != before:
        before = len(frame)
        for name in ("user_id", "item_id"):
            frame = frame.filter(pl.len().over(name) >= _CORE)
    return frame


def _of_world(world: World) -> pl.DataFrame:
    import polars as pl

    actions = world.interactions()
    users = actions.user_rows()
    columns: dict[str, Any] = {"user": users, "item": actions.items, "device": users % 3}
    return pl.DataFrame(columns)
