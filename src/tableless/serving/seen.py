"""Which items a user has had already: what a recommendation leaves out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..embedding.lookup import find
from ..recommender.datasets import load_interactions
from ..recommender.interactions import Interactions
from ..recommender.runs import recorded_data


class SeenItems:
    """The items of each user of some interactions, as rows of a run's list of items."""

    def __init__(self, interactions: Interactions, item_ids: Tensor) -> None:
        self.user_ids = torch.from_numpy(np.array(interactions.user_ids))  # ascending
        self._starts, self._items = interactions.starts, interactions.items
        listed, row = torch.sort(item_ids)
        position, known = find(torch.from_numpy(np.array(interactions.item_ids)), listed)
        self._row_of_item = torch.where(known, row[position], -1)  # -1: an item that is not recommended anyway

    def rows(self, user: int) -> Tensor:
        """The distinct rows of the items of a user (an id); none for a user who is not in the interactions."""
        place, known = find(torch.tensor(user), self.user_ids)
        if not known:
            return torch.empty(0, dtype=torch.int64)
        start, stop = self._starts[int(place)], self._starts[int(place) + 1]
        rows = self._row_of_item[torch.from_numpy(np.unique(self._items[start:stop]).astype(np.int64))]
        return rows[rows >= 0]


def read_seen(source: str | os.PathLike[str], config: Mapping[str, Any], item_ids: Tensor) -> SeenItems:
    """From a file, a directory or a known dataset; columns are called as in the data that the run was trained on."""
    recorded = recorded_data(config)
    interactions = load_interactions(
        os.fspath(source),
        data_dir=recorded.data_dir,
        user_col=recorded.user_col,
        item_col=recorded.item_col,
        time_col="",  # whenever it was
    )
    for side, kind in (("user", interactions.user_kind), ("item", interactions.item_kind)):
        if kind != config["kinds"][side]:
            raise ValueError(
                f"{side} ids are {kind}s in {source}, and {config['kinds'][side]}s in the data that the run was "
                "trained on; they would never match"
            )
    return SeenItems(interactions, item_ids)
