"""Genres of films, as side features: from the file that lies beside the interactions."""

from __future__ import annotations

from tableless.data.interactions import DataError, Interactions
from tableless.data.loading import find_data
from tableless.data.world import World
from tableless.embedding.side_features import SideFeatures


def genres_of(data: str, interactions: Interactions) -> SideFeatures:
    """What is known of the items: their genres, a column for each; in the synthetic world, a made-up pair for each."""
    if World.parse(data) is not None:
        ids = interactions.item_ids
        return SideFeatures.from_tags(ids, [[f"tens {item % 10}", f"fifths {item % 5}"] for item in ids.tolist()])
    import polars as pl

    path = find_data(data)[0]
    path = path.with_name(path.name.replace(".parquet", "-items.parquet"))
    if not path.exists():
        raise DataError(f"the genres of {data} are read from {path.name}, beside the interactions; it is not there")
    films = pl.read_parquet(path, columns=["item_id", "genres"]).drop_nulls()
    return SideFeatures.from_tags(films["item_id"].to_list(), [genres.split("|") for genres in films["genres"]])
