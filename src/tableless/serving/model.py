"""TrainedModel: a trained run that answers, which is what `tableless.load` returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from ..data.config import DataConfig
from ..embedding.ids import parse_id, to_ids
from ..embedding.scheme import Precision
from ..recommender.run_directory import RunDirectory, Side, StoredRun
from . import hub
from .hub import PathName, find_run
from .items import Catalogue, ListedItem, MapPoint, Neighbor, Recommendation, SeenItems, read_seen, read_titles
from .model_facts import Answers, listed_users, model_facts, users_to_offer
from .search import IndexKind, KnownIds, Ranking, on_a_plane
from .settings import AnswerSettings
from .side_vectors import SideVectors

_SIDES: tuple[Side, Side] = ("user", "item")


class TrainedModel:
    """A trained run, ready to answer: raw ids in, as the data had them, vectors, scores and items out. Thread-safe.

    `metadata` is a file with the items' titles. `interactions` (a file, a directory, a known dataset) says which items
    users have had; `seen` does so for a caller who has read them already.

    The vectors of all known items are computed once, in fp32, at the first question that needs them or by `prepare`.
    An integer is taken for an id as it is, also where the data has strings; a string where it has integers is refused.
    """

    def __init__(
        self,
        run: StoredRun,
        settings: AnswerSettings = AnswerSettings(),  # noqa: B008 - frozen
        *,
        metadata: PathName | None = None,
        interactions: PathName | None = None,
        seen: SeenItems | None = None,
    ) -> None:
        import polars as pl

        self.run = run
        self.directory = run.files.path
        self.config = run.config
        self.trained_on: DataConfig | None = None
        """Where `tableless.train` read its data; None for a model that was loaded."""
        self._model = run.model.eval()
        items = run.listed("item")
        titles = read_titles(Path(metadata), kind=self.config["kinds"]["item"]) if metadata else {}
        self._catalogue = Catalogue(items, titles)
        self._items = KnownIds(items["item"], to_ids(items["id"]), scheme=run.model.items, index=settings.index)
        self._seen = read_seen(interactions, self.config, self._items.ids) if interactions else seen
        users = listed_users(run, self._seen)
        self._users = None
        if users is not None:
            self._users = KnownIds(pl.Series(users.numpy()), users, scheme=run.model.users, index=settings.index)
        self._ranking = Ranking(run.model, self._items, index=settings.index)
        self.vectors: dict[Side, SideVectors] = {
            "user": SideVectors(run, "user", settings, sample_ids=users),
            "item": SideVectors(run, "item", settings, sample_ids=self._items.ids),
        }
        """From ids to vectors, for each side. A server asks here: its ids went through `to_ids` already."""
        self.facts = model_facts(
            run,
            num_users=None if users is None else len(users),
            precision={side: vectors.fast.precision for side, vectors in self.vectors.items()},
            example_users=users_to_offer(run, self._seen, users, interactions=interactions),
        )

    @property
    def results(self) -> dict[str, Any]:
        """What was measured after training: what `tableless train --json` prints; empty if the run has no results."""
        return dict(self.facts["results"])

    @property
    def num_items(self) -> int:
        """Items there are to recommend; others can be embedded and scored all the same, if the scheme is open."""
        return len(self._items)

    def prepare(self) -> None:
        """Compute now what is otherwise computed when first asked for: the vectors of all items, and indices."""
        self._ranking.prepare()
        self._items.directions()

    def parse(self, side: Side, text: str) -> int | str:
        """A raw id typed by a person, in the kind the data has."""
        return parse_id(text, kind=self.config["kinds"][side], side=side)

    def embed(self, ids: Any, *, side: Side = "item") -> Tensor:
        """Vectors [n, embedding_dim] of raw ids: a list, array, Series or tensor."""
        as_ids = self._ids(side, ids)
        return _ordinary(self.vectors[side](as_ids, ids))

    def embed_ids(self, ids: Tensor, *, side: Side) -> Tensor:
        """The same for ids that went through `to_ids` already."""
        return _ordinary(self.vectors[side](ids))

    def score(self, users: Any, items: Any) -> Tensor:
        """Scores [n] (logits) of pairs; as many users as items, or one user for all of them."""
        user_ids, item_ids = self._ids("user", users).reshape(-1), self._ids("item", items).reshape(-1)
        counts = len(user_ids), len(item_ids)
        if counts[0] not in (1, counts[1]):
            raise ValueError(f"{counts[0]} users and {counts[1]} items make no pairs; give as many, or one user")
        with torch.inference_mode():
            user_vectors = self.vectors["user"](user_ids, users)
            item_vectors = self._model.with_features(self.vectors["item"](item_ids, items), item_ids)
            axis = 0 if counts[0] == 1 else 1  # one user with n candidates, or n users with one candidate each
            return _ordinary(self._model.score(user_vectors, item_vectors.unsqueeze(axis)).squeeze(axis))

    def recommend(
        self, user: int | str, *, count: int = 10, exclude_seen: bool = True, exact: bool | None = None
    ) -> Answers[Recommendation]:
        """The best known items for a user, known or new, without those the user has had (as far as that is known).

        A list, which also has `known`: whether the user is known (see `is_known`).
        `exact=True` scores every item though there is an index; an MLP always does.
        """
        _require_positive(count)
        user_id = self._ids("user", [user])
        vector = self.vectors["user"](user_id, [user])
        seen = self._seen.rows(int(user_id)) if self._seen and exclude_seen else torch.empty(0, dtype=torch.int64)
        scores, rows = self._ranking.best(vector, count, without=seen, exact=exact)
        best = (
            Recommendation(self._items.names[row], score, self._catalogue.title_of_row(row))
            for score, row in zip(scores, rows, strict=True)
        )
        return Answers(best, known=self.is_known("user", user))

    def neighbors(self, id: int | str, *, side: Side = "item", count: int = 10) -> Answers[Neighbor]:
        """The known items (or users) whose vectors point in the direction nearest to that of an id, known or new.

        Users are known where the run lists them, or interactions are given, and by id: strings were not kept. A list,
        which also has `known`: whether the id is known (see `is_known`).
        """
        _require_positive(count)
        one = self._ids(side, [id])
        known = self._items if side == "item" else self._users
        if known is None:
            raise ValueError(
                f"{self.directory} does not list its users, so no neighbours can be named; load it with interactions"
            )
        cosines, rows = known.nearest(self.vectors[side](one, [id])[0], count, without=int(one))
        nearest = (
            Neighbor(known.names[row], cosine, self._catalogue.title_of_row(row) if side == "item" else None)
            for cosine, row in zip(cosines, rows, strict=True)
        )
        return Answers(nearest, known=self.is_known(side, id))

    def is_known(self, side: Side, id: int | str) -> bool | None:
        """Is an id among those that the run lists (or, of users, that `interactions` has)?

        None: the run does not list its users, as with an open scheme, and no interactions are given.
        """
        known = self.known_ids(self._ids(side, [id]), side=side)
        return None if known is None else known[0]

    def known_ids(self, ids: Tensor, *, side: Side) -> list[bool] | None:
        """The same for ids [n] that went through `to_ids` already."""
        known = self._items if side == "item" else self._users
        return None if known is None else known.has(ids).tolist()

    def title(self, item: int | str) -> str | None:
        """What an item is called, if the metadata says so."""
        return self._catalogue.titles.get(int(to_ids(item)))

    def items_matching(self, text: str, *, count: int = 20) -> list[ListedItem]:
        """Known items whose title holds the text or whose id begins with it, the most popular first."""
        return self._catalogue.matching(text, count)

    def map2d(self, *, count: int = 2000) -> list[MapPoint]:
        """The most popular items on the plane in which their vectors differ most (principal components)."""
        rows = self._catalogue.most_popular(count)
        places = on_a_plane(self._items.vectors[rows]).tolist()
        return [
            MapPoint(self._items.names[row], x, y, self._catalogue.title_of_row(row))
            for row, (x, y) in zip(rows, places, strict=True)
        ]

    @property
    def hot_ids_asked(self) -> int:
        """Ids that were embedded since the model was loaded, users and items, those of all requests together."""
        return sum(side.fast.hot_ids.asked for side in self.vectors.values() if side.fast.hot_ids)

    @property
    def hot_ids_hits(self) -> int:
        """How many of them were hot: their vectors were at hand."""
        return sum(side.fast.hot_ids.hits for side in self.vectors.values() if side.fast.hot_ids)

    @property
    def hot_hit_rate(self) -> float | None:
        """The share of hot ids; None before the first, and where no vectors are computed."""
        asked = self.hot_ids_asked
        return self.hot_ids_hits / asked if asked else None

    def save(self, directory: PathName) -> None:
        """Write the run directory that `tableless train --out` leaves, for `tableless.load` and every command.

        Args:
            directory: Where to; it is made if need be. The directory of the model itself stays as it is.

        Raises:
            FileExistsError: The directory holds another run.

        Example:
            ```python
            import tableless

            model = tableless.load("runs/mine")
            model.save("runs/copy")
            ```
        """
        if Path(directory).resolve() != self.directory.resolve():
            self.run.files.copy_to(RunDirectory(directory))

    def save_pretrained(self, directory: PathName) -> None:
        """Write what is needed to load the model again, and a model card (see `hub.save_pretrained`)."""
        hub.save_pretrained(self.run, self.facts, Path(directory))

    def push_to_hub(self, repo_id: str, *, private: bool | None = None, commit_message: str | None = None) -> str:
        """Upload it to the Hugging Face hub; returns its address."""
        return hub.push_to_hub(self.run, self.facts, repo_id, private=private, commit_message=commit_message)

    @classmethod
    def from_pretrained(
        cls,
        run: PathName,
        *,
        revision: str | None = None,
        precision: Precision = AnswerSettings.precision,
        hot_ids: int = AnswerSettings.hot_ids,
        index: IndexKind = AnswerSettings.index,
        metadata: PathName | None = None,
        interactions: PathName | None = None,
    ) -> Self:
        """From a run directory, or by the id of a model on the Hugging Face hub: `tableless.load` with a `revision`."""
        settings = AnswerSettings(precision=precision, hot_ids=hot_ids, index=index)
        stored = find_run(run, revision=revision).read()
        return cls(stored, settings, metadata=metadata, interactions=interactions)

    def _ids(self, side: Side, raw: Any) -> Tensor:
        if side not in _SIDES:
            raise ValueError(f"side is {side!r}; it must be user or item")
        return self.vectors[side].ids(raw)


def _ordinary(result: Tensor) -> Tensor:
    """The same memory as a tensor outside of inference mode, which others may train on."""
    return torch.from_numpy(result.numpy())


def _require_positive(count: int) -> None:
    if count < 1:
        raise ValueError(f"count is {count}; it must be 1 or more")
