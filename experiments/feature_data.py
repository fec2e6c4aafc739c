"""Actions with more than two features: the context of a news click, the author and publisher of a book."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tableless.data.loading import find_data, load_interactions
from tableless.data.world import World

Numbers = NDArray[np.int64]
CONTEXT = ["device_group", "os", "region", "referrer_type"]
_EVERY_TENTH = 10


@dataclass(frozen=True)
class FeatureData:
    """Values are numbered from 0 within each feature; the first feature of each side is the id itself."""

    of_actions: Mapping[str, Numbers]  # the user's side: [actions] each
    of_items: Mapping[str, Numbers]  # the item's side: [items] each
    items: Numbers  # [actions]: the item row of each action

    def vocabularies(self) -> dict[str, int]:
        """How many values each feature has."""
        return {name: int(values.max()) + 1 for name, values in {**self.of_actions, **self.of_items}.items()}

    def ids_only(self) -> FeatureData:
        """Without the further features."""
        return FeatureData({"user": self.of_actions["user"]}, {"item": self.of_items["item"]}, self.items)


@functools.lru_cache(maxsize=1)
def load_features(data: str) -> FeatureData:
    """`globo` (a tenth of its users, with context), `bookcrossing` (5-core, with author and publisher) or a `world`."""
    if data == "globo":
        return _globo()
    if data == "bookcrossing":
        return _bookcrossing()
    world = World.parse(data)
    if world is None:
        raise ValueError(f"no further features are known of {data!r}; known are globo, bookcrossing and world:…")
    actions = world.interactions()
    users, items = actions.user_rows().astype(np.int64), np.arange(actions.num_items)
    return FeatureData(
        {"user": users, "device": users % 3}, {"item": items, "author": items // 5}, _int64(actions.items)
    )


def _globo() -> FeatureData:
    import polars as pl

    columns = ["user_id", "item_id", *CONTEXT]
    clicks = pl.concat([pl.read_parquet(path, columns=columns) for path in find_data("globo")])
    clicks = clicks.filter(pl.col("user_id") % _EVERY_TENTH == 0).unique(["user_id", "item_id"], maintain_order=True)
    items = _numbered(clicks["item_id"].to_numpy())
    of_actions = {"user": _numbered(clicks["user_id"].to_numpy())}
    of_actions |= {name: _numbered(clicks[name].to_numpy()) for name in CONTEXT}
    return FeatureData(of_actions, {"item": np.arange(items.max() + 1)}, items)


def _bookcrossing() -> FeatureData:
    import polars as pl

    actions = load_interactions("bookcrossing", core=5)
    path = find_data("bookcrossing")[0]
    known = pl.read_parquet(path.with_name("bookcrossing-items.parquet"), columns=["item_id", "author", "publisher"])
    assert actions.item_names is not None
    books = actions.item_names.alias("item_id").to_frame()
    books = books.join(known.unique("item_id"), on="item_id", how="left", maintain_order="left")
    of_items = {"item": np.arange(actions.num_items)}
    for name in ("author", "publisher"):  # a book that nobody described has the value "", like any other
        of_items[name] = _numbered(books[name].fill_null("").to_numpy())
    return FeatureData({"user": _int64(actions.user_rows())}, of_items, _int64(actions.items))


def _numbered(values: NDArray[Any]) -> Numbers:
    return _int64(np.unique(values, return_inverse=True)[1])


def _int64(values: NDArray[Any]) -> Numbers:
    return values.astype(np.int64)
