"""The best of all items for a user."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from ..recommender.models import GMF, Recommender
from .known_ids import KnownIds
from .neighbors import FaissRows, IndexKind

_BLOCK = 16_384  # items scored at once: an MLP's hidden layers for a million of them would not fit in memory


class Ranking:
    """Scores a user with every item, or with those that an index finds.

    GMF's score is an inner product, so faiss can find the highest. An MLP's is not: it always scores every item.
    """

    def __init__(self, model: Recommender, items: KnownIds, *, index: IndexKind) -> None:
        self._model = model
        self._items = items
        self._by_index = index == "faiss" and isinstance(model, GMF)
        self._lock = threading.Lock()
        self._prepared: Tensor | None = None
        self._index: FaissRows | None = None

    @torch.inference_mode()
    def best(
        self, person: Tensor, count: int, *, without: Tensor, exact: bool | None = None
    ) -> tuple[list[float], list[int]]:
        """A user's vector [1, dim] -> the highest scores and the rows of their items, other than those `without`."""
        if exact is False and not self._by_index:
            if isinstance(self._model, GMF):
                raise ValueError("exact=False needs a model that was loaded with index='faiss'")
            raise ValueError("an MLP's scores are no inner products, which an index could find; they are always exact")
        prepared, user = self.prepare(), self._model.prepare_users(person)
        count = max(0, min(count, len(prepared) - len(without)))
        if self._by_index and not exact:
            assert self._index is not None
            _, rows = self._index.search(user[0], count + len(without))
            rows = rows[~torch.isin(rows, without)]
            if len(rows) >= count:  # else the index has found too few
                scores, order = self._model.score_all(user, prepared[rows])[0].topk(count)
                return scores.tolist(), rows[order].tolist()
        blocks = (prepared[start : start + _BLOCK] for start in range(0, len(prepared), _BLOCK))
        scores = torch.cat([self._model.score_all(user, block)[0] for block in blocks])
        scores[without] = -torch.inf
        scores, rows = scores.topk(count)
        return scores.tolist(), rows.tolist()

    def prepare(self) -> Tensor:
        """The item's part of every score, [items, …]: computed once."""
        vectors = self._items.vectors
        with self._lock, torch.inference_mode():
            if self._prepared is None:
                self._prepared = self._model.prepare_items(self._model.with_features(vectors, self._items.ids))
                self._index = FaissRows(self._prepared) if self._by_index else None
            return self._prepared
