"""TrainedModel: a trained run that answers, which is what `tableless.load` returns."""

from __future__ import annotations

import threading
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
from .items import ListedItem, MapPoint, Neighbor, Recommendation, SeenItems, read_seen, read_titles
from .listing import Listing, add_rows
from .model_facts import Answers, listed_users, model_facts, users_to_offer
from .search import IndexKind
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
        self.run = run
        self.directory = run.files.path
        self.config = run.config
        self.trained_on: DataConfig | None = None
        """Where `tableless.train` read its data; None for a model that was loaded."""
        self._model = run.model.eval()
        titles = read_titles(Path(metadata), kind=self.config["kinds"]["item"]) if metadata else {}
        listing = Listing.of(run, titles, index=settings.index)
        item_ids = listing.items.ids
        self._seen = read_seen(interactions, self.config, item_ids) if interactions else seen
        users = listed_users(run, self._seen)
        self._listing = listing.with_users(users)
        self._adding = threading.Lock()
        self.vectors: dict[Side, SideVectors] = {
            "user": SideVectors(run, "user", settings, sample_ids=users),
            "item": SideVectors(run, "item", settings, sample_ids=item_ids),
        }
        """From ids to vectors. A server asks here: its ids went through `to_ids` already."""
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
        return len(self._listing.items)

    def prepare(self) -> None:
        """Compute now what is otherwise computed when first asked for: the vectors of all items, and indices."""
        self._listing.prepare()

    def parse(self, side: Side, text: str) -> int | str:
        """A raw id typed by a person, in the kind the data has."""
        return parse_id(text, kind=self.config["kinds"][side], side=side)

    def embed(self, ids: Any, *, side: Side = "item") -> Tensor:
        """Vectors [n, embedding_dim] of raw ids: a list, array, Series or tensor."""
        as_ids = self._ids(side, ids)
        return _ordinary(self.vectors[side](as_ids, ids))

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
        listing = self._listing  # once: another may take its place at any time
        user_id = self._ids("user", [user])
        vector = self.vectors["user"](user_id, [user])
        seen = self._seen.rows(int(user_id)) if self._seen and exclude_seen else torch.empty(0, dtype=torch.int64)
        best = listing.best(vector, count, without=seen, exact=exact)
        return Answers(best, known=self.is_known("user", user))

    def neighbors(self, id: int | str, *, side: Side = "item", count: int = 10) -> Answers[Neighbor]:
        """The known items (or users) whose vectors point in the direction nearest to that of an id, known or new.

        Users are known where the run lists them, or interactions are given, and by id: strings were not kept. A list,
        which also has `known`: whether the id is known (see `is_known`).
        """
        _require_positive(count)
        one = self._ids(side, [id])
        nearest = self._listing.nearest(side, self.vectors[side](one, [id])[0], count, without=int(one))
        return Answers(nearest, known=self.is_known(side, id))

    def add_items(self, items: Any) -> list[int | str]:
        """Add new items by their features. They are listed, recommended and have neighbours from then on.

        They are in the run directory before this returns. An item that was added before gets its new features.

        Args:
            items: A row (a dict with `id` and features), a list of them, or a frame with the columns of the training. A
                feature may be left out; `title` is shown in answers.

        Returns:
            The raw ids, in order.

        Raises:
            ValueError: The run has no item features, a row is not understood, or an item was in training.

        Example:
            ```python
            import tableless

            films = {"item": [*range(60)], "genre": ["war", "love", "crime"] * 20}
            actions = {"user": [n // 9 for n in range(900)], "item": [n * n % 57 for n in range(900)]}
            model = tableless.train(actions, scheme="full", item_features=films)
            model.add_items({"id": 777, "genre": "crime"})
            ```
        """
        return self._add("item", items)

    def add_users(self, users: Any) -> list[int | str]:
        """Add new users by their features, as `add_items` does with items: `recommend` then answers for them."""
        return self._add("user", users)

    def _add(self, side: Side, data: Any) -> list[int | str]:
        with self._adding:
            rows = add_rows(self.run, side, data, self._listing)
            self.vectors[side].fast.renew()
            raw = [row["id"] for row in rows]
            self._listing = self._listing.with_added(side, rows, self.embed(raw, side=side))
        return raw

    def is_known(self, side: Side, id: int | str) -> bool | None:
        """Is an id among those that the run lists (or, of users, that `interactions` has)?

        None: the run does not list its users, as with an open scheme, and no interactions are given.
        """
        known = self.known_ids(self._ids(side, [id]), side=side)
        return None if known is None else known[0]

    def known_ids(self, ids: Tensor, *, side: Side) -> list[bool] | None:
        """The same for ids [n] that went through `to_ids` already."""
        known = self._listing.known[side]
        return None if known is None else known.has(ids).tolist()

    def title(self, item: int | str) -> str | None:
        """What an item is called, if the metadata says so."""
        return self._listing.catalogue.titles.get(int(to_ids(item)))

    def items_matching(self, text: str, *, count: int = 20) -> list[ListedItem]:
        """Known items whose title holds the text or whose id begins with it, the most popular first."""
        return self._listing.catalogue.matching(text, count)

    def map2d(self, *, count: int = 2000) -> list[MapPoint]:
        """The most popular items on the plane in which their vectors differ most (principal components)."""
        return self._listing.on_a_map(count)

    @property
    def hot_counts(self) -> tuple[int, int]:
        """How many ids were hot, so that their vectors were at hand, of how many that were embedded."""
        counted = [side.fast.hot_ids for side in self.vectors.values() if side.fast.hot_ids]
        return sum(each.hits for each in counted), sum(each.asked for each in counted)

    @property
    def hot_hit_rate(self) -> float | None:
        """The share of hot ids; None before the first, and where no vectors are computed."""
        hits, asked = self.hot_counts
        return hits / asked if asked else None

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
