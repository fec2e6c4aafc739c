"""What is worth knowing about a trained run, as plain values.

TrainedModel: a trained run that answers, which is what `tableless.load` returns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from ..data.loading import DataConfig
from ..embedding.ids import to_ids
from ..embedding.scheme import EmbeddingScheme, Precision
from ..files.scheme_directory import read_json
from ..recommender.run_directory import Side, TrainedRun, copy_run
from . import hub
from .fast_embedding import FastEmbedding
from .items import (
    Catalogue,
    ListedItem,
    MapPoint,
    Neighbor,
    Recommendation,
    SeenItems,
    read_seen,
    read_titles,
)
from .search import IndexKind, KnownIds, Ranking, on_a_plane


def model_facts(run: TrainedRun, *, num_users: int | None, precision: Mapping[Side, Precision]) -> dict[str, Any]:
    """Sizes, what full tables for the same users and items would have cost, and what was measured after training.

    `num_users` is how many are known; where the run kept how many it was trained on, that counts. None: not known, and
    then `table_parameters` is not, either. `precision` is what each side is really computed in.
    """
    path = run.directory / "results.json"
    results = read_json(path) if path.exists() else {}
    users, items = results.get("num_users", num_users), len(run.listed("item"))
    dim = run.model.items.embedding_dim
    return {
        "scheme": run.config["model"]["items"]["scheme"],
        "backbone": run.config["model"]["backbone"],
        "embedding_dim": dim,
        "parameters": run.model.num_parameters,
        "embedding_parameters": run.model.embedding_parameters,
        "table_parameters": None if users is None else (users + items) * dim,
        "num_users": users,
        "num_items": items,
        "answers_new_ids": run.model.answers_new_ids,
        "precision": _in_words(precision),
        "results": results,
    }


def _in_words(precision: Mapping[Side, Precision]) -> str:
    """One word where both sides are alike."""
    if precision["user"] == precision["item"]:
        return precision["item"]
    return f"users {precision['user']}, items {precision['item']}"


if TYPE_CHECKING:
    import polars as pl


class TrainedModel:
    """A trained run, ready to answer: raw ids in, as the data had them, vectors, scores and items out. Thread-safe.

    `precision` and `hot_ids` (how many ids to keep ready, for users and for items) are those of `FastEmbedding`. With
    `index="faiss"` neighbours and recommendations are looked up instead of compared with every item. `metadata` is a
    file with the items' titles; `interactions` (a file, a directory, a known dataset) says which items users have had,
    or `seen` does, for who has read them already.

    The vectors of all known items are computed once, in fp32, at the first question that needs them or by `prepare`.
    An integer is taken for an id as it is, also where the data has strings; a string where it has integers is refused.
    """

    def __init__(
        self,
        run: TrainedRun,
        *,
        precision: Precision = "fp32",
        hot_ids: int = 10_000,
        index: IndexKind = "exact",
        metadata: str | os.PathLike[str] | None = None,
        interactions: str | os.PathLike[str] | None = None,
        seen: SeenItems | None = None,
    ) -> None:
        import polars as pl

        if index not in ("exact", "faiss"):
            raise ValueError(f"index is {index!r}; it must be exact or faiss")
        self.run = run
        self.directory = run.directory
        self.config = run.config
        self.trained_on: DataConfig | None = None
        """Where `tableless.train` read its data; None for a model that was loaded."""
        self._model = run.model.eval()
        items = run.listed("item")
        self._titles = read_titles(Path(metadata), kind=self.config["kinds"]["item"]) if metadata else {}
        self._catalogue = Catalogue(items, self._titles)
        self._items = self._known("item", items["item"], to_ids(items["id"]), index)
        self._seen = read_seen(interactions, self.config, self._items.ids) if interactions else seen
        user_ids = self._listed_users()
        self._users = None if user_ids is None else self._known("user", pl.Series(user_ids.numpy()), user_ids, index)
        self._ranking = Ranking(run.model, self._items, index=index)
        self._fast: dict[Side, FastEmbedding] = {
            "user": _fast(self._model.users, precision, hot_ids, user_ids),
            "item": _fast(self._model.items, precision, hot_ids, self._items.ids),
        }
        num_users = None if self._users is None else len(self._users)
        precisions: dict[Side, Precision] = {side: fast.precision for side, fast in self._fast.items()}
        self.facts = model_facts(run, num_users=num_users, precision=precisions)

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
        return self.run.parse(side, text)

    def embed(self, ids: Any, *, side: Side = "item") -> Tensor:
        """Vectors [n, embedding_dim] of raw ids: a list, array, Series or tensor."""
        return _ordinary(self._fast_vectors(side, self._ids(side, ids)))

    def score(self, users: Any, items: Any) -> Tensor:
        """Scores [n] (logits) of pairs; as many users as items, or one user for all of them."""
        user_ids, item_ids = self._ids("user", users).reshape(-1), self._ids("item", items).reshape(-1)
        if len(user_ids) not in (1, len(item_ids)):
            raise ValueError(
                f"{len(user_ids)} users and {len(item_ids)} items make no pairs; give as many, or one user"
            )
        with torch.inference_mode():
            user_vectors = self._fast["user"](self.run.inputs("user", user_ids))
            item_vectors = self._model.with_features(self._fast_vectors("item", item_ids), item_ids)
            axis = 0 if len(user_ids) == 1 else 1  # one user with n candidates, or n users with one candidate each
            return _ordinary(self._model.score(user_vectors, item_vectors.unsqueeze(axis)).squeeze(axis))

    def recommend(
        self, user: int | str, *, count: int = 10, exclude_seen: bool = True, exact: bool | None = None
    ) -> list[Recommendation]:
        """The best known items for a user, known or new, without those the user has had (as far as that is known).

        `exact=True` scores every item though there is an index; an MLP always does.
        """
        _require_positive(count)
        user_id = self._ids("user", [user])
        vector = self._fast_vectors("user", user_id)
        seen = self._seen.rows(int(user_id)) if self._seen and exclude_seen else torch.empty(0, dtype=torch.int64)
        scores, rows = self._ranking.best(vector, count, without=seen, exact=exact)
        return [
            Recommendation(self._items.names[row], score, self._title_of_row(row))
            for score, row in zip(scores, rows, strict=True)
        ]

    def neighbors(self, id: int | str, *, side: Side = "item", count: int = 10) -> list[Neighbor]:
        """The known items (or users) whose vectors point in the direction nearest to that of an id, known or new.

        Users are known where the run lists them, or interactions are given, and by id: strings were not kept.
        """
        _require_positive(count)
        one = self._ids(side, [id])
        known = self._items if side == "item" else self._users
        if known is None:
            raise ValueError(
                f"{self.directory} does not list its users, so no neighbours can be named; load it with interactions"
            )
        cosines, rows = known.nearest(self._fast_vectors(side, one)[0], count, without=int(one))
        return [
            Neighbor(known.names[row], cosine, self._title_of_row(row) if side == "item" else None)
            for cosine, row in zip(cosines, rows, strict=True)
        ]

    def title(self, item: int | str) -> str | None:
        """What an item is called, if the metadata says so."""
        return self._titles.get(int(to_ids(item)))

    def items_matching(self, text: str, *, count: int = 20) -> list[ListedItem]:
        """Known items whose title holds the text or whose id begins with it, the most popular first."""
        return self._catalogue.matching(text, count)

    def map2d(self, *, count: int = 2000) -> list[MapPoint]:
        """The most popular items on the plane in which their vectors differ most (principal components)."""
        rows = self._catalogue.most_popular(count)
        places = on_a_plane(self._items.vectors[rows]).tolist()
        return [
            MapPoint(self._items.names[row], x, y, self._title_of_row(row))
            for row, (x, y) in zip(rows, places, strict=True)
        ]

    @property
    def hot_ids_asked(self) -> int:
        """Ids that were embedded since the model was loaded, users and items, those of all requests together."""
        return sum(fast.hot_ids.asked for fast in self._fast.values() if fast.hot_ids)

    @property
    def hot_ids_hits(self) -> int:
        """How many of them were hot: their vectors were at hand."""
        return sum(fast.hot_ids.hits for fast in self._fast.values() if fast.hot_ids)

    @property
    def hot_hit_rate(self) -> float | None:
        """The share of hot ids; None before the first, and where no vectors are computed."""
        asked = self.hot_ids_asked
        return self.hot_ids_hits / asked if asked else None

    def save(self, directory: str | os.PathLike[str]) -> None:
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
            copy_run(self.directory, Path(directory))

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write what is needed to load the model again, and a model card (see `hub.save_pretrained`)."""
        hub.save_pretrained(self.run, self.facts, Path(directory))

    def push_to_hub(self, repo_id: str, *, private: bool | None = None, commit_message: str | None = None) -> str:
        """Upload it to the Hugging Face hub; returns its address."""
        return hub.push_to_hub(self.run, self.facts, repo_id, private=private, commit_message=commit_message)

    @classmethod
    def from_pretrained(
        cls,
        run: str | os.PathLike[str],
        *,
        revision: str | None = None,
        precision: Precision = "fp32",
        hot_ids: int = 10_000,
        index: IndexKind = "exact",
        metadata: str | os.PathLike[str] | None = None,
        interactions: str | os.PathLike[str] | None = None,
    ) -> Self:
        """From a run directory, or by the id of a model on the Hugging Face hub."""
        return cls(
            TrainedRun(hub.find_run(run, revision=revision)),
            precision=precision,
            hot_ids=hot_ids,
            index=index,
            metadata=metadata,
            interactions=interactions,
        )

    def _ids(self, side: Side, raw: Any) -> Tensor:
        if side not in ("user", "item"):
            raise ValueError(f"side is {side!r}; it must be user or item")
        if isinstance(raw, Iterator):
            raw = list(raw)
        if self.config["kinds"][side] == "integer" and (text := _first_text(raw)) is not None:
            raise ValueError(f"{side} ids are integers in this run's data, and {text!r} is a string")
        return to_ids(raw)

    def _fast_vectors(self, side: Side, ids: Tensor) -> Tensor:
        return self._fast[side](self.run.inputs(side, ids))

    def _known(self, side: Side, names: pl.Series, ids: Tensor, index: IndexKind) -> KnownIds:
        scheme = self._model.items if side == "item" else self._model.users
        return KnownIds(names, ids=ids, inputs=self.run.inputs(side, ids), scheme=scheme, index=index)

    def _listed_users(self) -> Tensor | None:
        if not self._model.users.open_vocabulary:
            return to_ids(self.run.listed("user")["id"])
        return self._seen.user_ids if self._seen else None

    def _title_of_row(self, row: int) -> str | None:
        return self._titles.get(int(self._items.ids[row])) if self._titles else None


def _fast(scheme: EmbeddingScheme, precision: Precision, hot_ids: int, sample_ids: Tensor | None) -> FastEmbedding:
    """Vectors that are only looked up are no slower than hot ones."""
    hot_ids = hot_ids if scheme.is_computed else 0
    return FastEmbedding(scheme, precision=precision, hot_ids=hot_ids, sample_ids=sample_ids)


def _ordinary(result: Tensor) -> Tensor:
    """The same memory as a tensor outside of inference mode, which others may train on."""
    return torch.from_numpy(result.numpy())


def _first_text(raw: Any) -> str | bytes | None:
    """The first of some raw ids, if they are strings."""
    if isinstance(raw, (str, bytes)):
        return raw
    if isinstance(raw, (Tensor, np.generic)):
        return None
    values = raw.ravel() if isinstance(raw, np.ndarray) else raw
    first = next(iter(values), None) if isinstance(values, Iterable) else values
    return first if isinstance(first, (str, bytes)) else None


def _require_positive(count: int) -> None:
    if count < 1:
        raise ValueError(f"count is {count}; it must be 1 or more")
