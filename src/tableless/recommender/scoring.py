"""Scoring: users and items by their rows → scores, by a trained model, by popularity, or by anything that has them.

A row is the place of a user or an item in the data. A scheme is fed (`scheme_inputs`) the id of a row, or the row
itself where the scheme has a table of rows. Features are kept by id, so a model always gets the ids as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.interactions import Interactions, Rows
from ..data.splits import Split
from ..embedding.ids import find
from ..embedding.scheme import EmbeddingScheme
from ..kernels.idle_cores import on_idle_cores
from .batches import Batch
from .models import Recommender

_CHUNK = 65_536  # items embedded at once: the codes of millions would take gigabytes


class Scorer(Protocol):
    """Scores of some users with all items, or with some."""

    def __call__(self, users: Rows, items: Rows | None = None) -> Tensor:
        """User rows [n] -> float32 [n, num_items] without `items`.

        With item rows [m] the scores of each user with these: [n, m]. With item rows [n, m] each user has a list of
        items of their own: [n, m].
        """


def by_rows(rows: Callable[[Rows], Tensor]) -> Scorer:
    """A scorer made from a function that gives whole rows: users [n] -> [n, num_items]."""

    def score(users: Rows, items: Rows | None = None) -> Tensor:
        scores = rows(users)
        if items is None:
            return scores
        chosen = torch.from_numpy(items).long()
        return scores[:, chosen] if chosen.ndim == 1 else scores.gather(1, chosen)

    return score


@dataclass(frozen=True)
class ModelInputs:
    """What a model is fed for the users and items of each row: inputs of its schemes, and ids to find features by."""

    users: Tensor  # [num_users]
    items: Tensor  # [num_items]
    item_ids: Tensor  # [num_items]

    @classmethod
    def of(cls, model: Recommender, train: Interactions) -> ModelInputs:
        """The inputs of all rows, on the device of the model."""
        device = next(model.parameters()).device
        users, items = scheme_inputs(model.users, train.user_ids), scheme_inputs(model.items, train.item_ids)
        return cls(users.to(device), items.to(device), torch.from_numpy(np.array(train.item_ids)).to(device))

    def of_batch(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The arguments of `Recommender.score_distinct` for a batch."""
        return self.users[batch.users], self.items[batch.items], batch.user, batch.item, self.item_ids[batch.items]


def model_scores(model: Recommender, split: Split) -> Scorer:
    """The scores of a model. All item vectors are computed once; a user's are computed when asked for.

    Only known items have scores, if the model knows no others.
    """
    model.eval()
    inputs = ModelInputs.of(model, split.train)
    count = split.train.num_items if model.answers_new_ids else split.num_known_items
    parts = zip(torch.split(inputs.items[:count], _CHUNK), torch.split(inputs.item_ids[:count], _CHUNK), strict=True)
    with torch.no_grad():
        prepared = torch.cat([model.prepare_items(model.item_vectors(*part)) for part in parts])

    @torch.no_grad()
    @on_idle_cores()
    def score(users: Rows, items: Rows | None = None) -> Tensor:
        distinct, place = np.unique(users, return_inverse=True)
        vectors = model.prepare_users(model.user_vectors(inputs.users[torch.from_numpy(distinct).long()]))
        vectors = vectors[torch.from_numpy(place)]
        if items is None:
            return model.score_all(vectors, prepared)
        chosen = torch.from_numpy(items).long().to(prepared.device)
        return model.score_all(vectors, prepared[chosen]) if items.ndim == 1 else (
            model.score_lists(vectors, prepared, chosen)
        )  # fmt: skip

    return score


def popularity_scores(train: Interactions) -> Scorer:
    """Everyone gets what most people chose: the floor under every personal recommendation."""
    counts = torch.from_numpy(np.bincount(train.items, minlength=train.num_items)).to(torch.float32)
    return by_rows(lambda users: counts.expand(len(users), -1))


def scheme_inputs(scheme: EmbeddingScheme, ids: NDArray[np.int64]) -> Tensor:
    """What a scheme is fed for each row of the data: the id itself, or the row's number where it has a table of rows.

    `RowsById` is the other direction: from any ids to their rows.
    """
    return torch.from_numpy(np.array(ids)) if scheme.open_vocabulary else torch.arange(len(ids))


class MissingRowError(ValueError):
    """An id has no row. `position` says which of those asked for, from 0."""

    def __init__(self, side: str, position: int) -> None:
        super().__init__(
            f"this run's table has no row for {side} number {position + 1} of those asked for: it was not in the "
            "training data. A scheme that is open to new ids, such as dhe, would answer"
        )
        self.position = position


class RowsById:
    """What a closed scheme is fed for an id: its row. `listed` are the ids of the rows, in order."""

    def __init__(self, listed: Tensor, side: str) -> None:
        self._sorted, self._row = torch.sort(listed)
        self._side = side

    def __call__(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> rows [...]. An id without a row is refused."""
        position, known = find(ids, self._sorted)
        if not bool(known.all()):
            raise MissingRowError(self._side, int((~known).reshape(-1).nonzero()[0]))
        return self._row[position]
