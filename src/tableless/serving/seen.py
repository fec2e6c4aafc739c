"""Which items a user has had already: what a recommendation leaves out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..embedding.lookup import find
from ..recommender.datasets import load_interactions
from ..recommender.interactions import Interactions
from ..recommender.runs import recorded_data
from ..recommender.scoring import Rows


class SeenItems:
    """The items of each user of some interactions, as rows of a run's list of items.

    `held_out` are more actions of the same users and items: their rows of users, which ascend, and of items.
    """

    def __init__(
        self, interactions: Interactions, item_ids: Tensor, *, held_out: Sequence[tuple[Rows, Rows]] = ()
    ) -> None:
        # New users stand behind the known ones in a split, so that the ids need not ascend with the rows.
        self.user_ids, self._user_rows = torch.sort(torch.from_numpy(np.array(interactions.user_ids)))
        self._starts, self._items, self._held_out = interactions.starts, interactions.items, list(held_out)
        listed, row = torch.sort(item_ids)
        position, known = find(torch.from_numpy(np.array(interactions.item_ids)), listed)
        self._row_of_item = torch.where(known, row[position], -1)  # -1: an item that is not recommended anyway

    def rows(self, user: int) -> Tensor:
        """The distinct rows of the items of a user (an id); none for a user who is not in the interactions."""
        place, known = find(torch.tensor(user), self.user_ids)
        if not known:
            return torch.empty(0, dtype=torch.int64)
        user_row = int(self._user_rows[place])
        items = [self._items[self._starts[user_row] : self._starts[user_row + 1]]]
        for users, their_items in self._held_out:
            start, stop = np.searchsorted(users, [user_row, user_row + 1])
            items.append(their_items[start:stop])
        rows = self._row_of_item[torch.from_numpy(np.unique(np.concatenate(items)).astype(np.int64))]
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
