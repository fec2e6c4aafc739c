"""The ids that a model knows, and the answers that are found among them. Added ids make a new listing.

A model has one listing at a time. A question keeps the one that it began with.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from ..embedding.ids import to_ids
from ..recommender.added_ids import Row, as_rows, describe_ids
from ..recommender.features import SIDES, columns_of
from ..recommender.models import Recommender
from ..recommender.run_directory import Side, StoredRun
from .items import Catalogue, MapPoint, Neighbor, Recommendation
from .search import IndexKind, KnownIds, Ranking, on_a_plane

if TYPE_CHECKING:
    from typing import Any

    import polars as pl


class Listing:
    """Items, as `frame` lists them (`item`, `id`, perhaps `actions`), and users, where these are known."""

    def __init__(
        self,
        model: Recommender,
        frame: pl.DataFrame,
        titles: Mapping[int, str],
        known: Mapping[Side, KnownIds | None],
        *,
        index: IndexKind,
    ) -> None:
        items = known["item"]
        assert items is not None, "every run lists its items"
        self.items = items
        self.known = known
        self.catalogue = Catalogue(frame, titles)
        self.ranking = Ranking(model, items, index=index)
        self._model, self._frame, self._index = model, frame, index

    @classmethod
    def of(cls, run: StoredRun, titles: Mapping[int, str], *, index: IndexKind) -> Listing:
        """All items of a run, with those that were added. A title that came with an added item counts most."""
        frame = run.listed("item")
        items = KnownIds(frame["item"], frame["id"].to_torch(), scheme=run.model.items, index=index)
        added = run.files.added["item"].read()
        return cls(run.model, frame, {**titles, **_titles_of(added)}, {"item": items, "user": None}, index=index)

    def with_users(self, ids: Tensor | None) -> Listing:
        """The same with users (None: nobody can tell who is known)."""
        import polars as pl

        if ids is None:
            return self
        own = copy.copy(self)
        users = KnownIds(pl.Series(ids.numpy()), ids, scheme=self._model.users, index=self._index)
        own.known = {**self.known, "user": users}
        return own

    def with_added(self, side: Side, rows: Sequence[Row], vectors: Tensor) -> Listing:
        """The same with ids behind the others, or in their old place, and their vectors [rows, dim]."""
        import polars as pl

        before = self.known[side]
        if before is None:
            return self
        ids = to_ids([row["id"] for row in rows])
        if side == "user":
            return self._changed({**self.known, side: before.with_added(pl.Series(ids.numpy()), ids, vectors)})
        names = pl.Series("item", [row["id"] for row in rows], self._frame.schema["item"])
        items = before.with_added(names, ids, vectors)
        more = pl.DataFrame({"item": items.names, "id": items.ids.numpy()})[len(before) :]
        frame = pl.concat([self._frame, more], how="diagonal")
        titles = {**self.catalogue.titles, **_titles_of(rows)}
        return Listing(self._model, frame, titles, {**self.known, side: items}, index=self._index)

    def prepare(self) -> None:
        """Compute now what is otherwise computed when first asked for."""
        self.ranking.prepare()
        self.items.directions()

    def best(self, user: Tensor, count: int, *, without: Tensor, exact: bool | None) -> list[Recommendation]:
        """The best items for a user's vector [1, dim]; the rows `without` are not among them."""
        scores, rows = self.ranking.best(user, count, without=without, exact=exact)
        return [
            Recommendation(self.items.names[row], score, self.catalogue.title_of_row(row))
            for score, row in zip(scores, rows, strict=True)
        ]

    def nearest(self, side: Side, vector: Tensor, count: int, *, without: int) -> list[Neighbor]:
        """The ids of a side whose vectors point in the direction nearest to this one."""
        known = self.known[side]
        if known is None:
            raise ValueError(
                "this run does not list its users, so no neighbours can be named; load it with interactions"
            )
        cosines, rows = known.nearest(vector, count, without=without)
        return [
            Neighbor(known.names[row], cosine, self.catalogue.title_of_row(row) if side == "item" else None)
            for cosine, row in zip(cosines, rows, strict=True)
        ]

    def on_a_map(self, count: int) -> list[MapPoint]:
        """The most popular items on the plane in which their vectors differ most (principal components)."""
        rows = self.catalogue.most_popular(count)
        places = on_a_plane(self.items.vectors[rows]).tolist()
        return [
            MapPoint(self.items.names[row], x, y, self.catalogue.title_of_row(row))
            for row, (x, y) in zip(rows, places, strict=True)
        ]

    def _changed(self, known: Mapping[Side, KnownIds | None]) -> Listing:
        own = copy.copy(self)
        own.known = known
        return own


def add_rows(run: StoredRun, side: Side, data: Any, listing: Listing) -> list[Row]:
    """Check rows of new ids, keep them in the run directory, and tell the model. Ids of the training are refused."""
    rows = as_rows(data, columns_of(run.config, side), side=side, kind=run.config["kinds"][side])
    ids = to_ids([row["id"] for row in rows])
    scheme: Any = getattr(run.model, SIDES[side])
    known = listing.known[side]
    assert known is not None, "a run with features lists its ids"
    is_trained = known.has(ids) & ~scheme.is_described(ids)
    if is_trained.any():
        place = int(is_trained.nonzero()[0]) + 1
        raise ValueError(
            f"{side} number {place} of those given is known from training, where its vector was learned; "
            "only new ids can be added"
        )
    run.files.added[side].append(rows)
    describe_ids(run.model, run.config, side, rows)
    return rows


def _titles_of(rows: Sequence[Row]) -> dict[int, str]:
    """The titles that came with added rows, by id."""
    return {int(to_ids(row["id"])): str(row["title"]) for row in rows if row.get("title")}
