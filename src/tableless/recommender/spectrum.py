"""A start for tables: the directions that most of the actions follow.

The matrix of users and items, with one for each action, is divided by the square roots of how many actions its users
and items have. Its first singular vectors say who is like whom. They take a second or two to find (by random
projection), and rank far better than popularity does. A table that starts with them needs fewer epochs than one that
starts with noise, and ends better on sparse data (docs/tried.md).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.interactions import Interactions
from ..data.splits import Split
from ..embedding.scheme import seeded
from .backbone import Recommender, rows_of_table

_ROUNDS = 4  # of the projection: the scores are then those of an exact decomposition, but for a hundredth (tests)
_MORE_DIRECTIONS = 16  # than are wanted, so that the last of those wanted are exact enough
_NOISE = 1e-3  # beside rows of length one: a user without actions needs a direction, too


@torch.no_grad()
def start_from_spectrum(model: Recommender, split: Split) -> None:
    """Set both tables of a model whose scores are inner products: rows of length one on average."""
    dim, generator = model.users.embedding_dim, seeded(model.seed)
    for side, rows in zip((model.users, model.items), _spectrum(split, dim, generator), strict=True):
        table = rows_of_table(side)
        noise = _NOISE * torch.randn(table.shape, generator=generator)
        noise[:, : rows.shape[1]] += rows / rows.norm(dim=1).mean().clamp_min(1e-12)
        table.copy_(noise)


def _spectrum(split: Split, dim: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows of users and of items, [known, dim] or fewer columns where there are fewer ids than dimensions.

    An item's row is longer the more often it was chosen, as in the scores of a trained table.
    """
    actions = _Actions(split.train, split.num_known_users, split.num_known_items)
    count = min(dim + _MORE_DIRECTIONS, split.num_known_users, split.num_known_items)
    basis = torch.randn(split.num_known_items, count, generator=generator)
    for _ in range(_ROUNDS):
        basis = torch.linalg.qr(actions.to_items(actions.to_users(basis)))[0]
    left, sigma, right = torch.linalg.svd(actions.to_users(basis), full_matrices=False)
    scale = sigma[:dim].sqrt()
    items = basis @ right.mT[:, :dim] * scale / actions.item_scale
    return left[:, :dim] * scale, items


class _Actions:
    """The matrix of users and items, as two products with it."""

    def __init__(self, train: Interactions, num_users: int, num_items: int) -> None:
        self._starts, self._items = np.asarray(train.starts)[: num_users + 1], np.asarray(train.items)
        counts = np.bincount(self._items, minlength=num_items)[:num_items]
        self.item_scale = _one_over_root(counts)
        self._user_scale = _one_over_root(np.diff(self._starts))

    def to_users(self, items: Tensor) -> Tensor:
        """[items, width] -> [users, width]."""
        from ..kernels import action_loops

        out = torch.empty(len(self._user_scale), items.shape[1])
        scaled = (items * self.item_scale).contiguous()
        action_loops.sum_over_items(self._starts, self._items, scaled.numpy(), out.numpy())
        return out * self._user_scale

    def to_items(self, users: Tensor) -> Tensor:
        """[users, width] -> [items, width]."""
        from ..kernels import action_loops

        out = torch.empty(len(self.item_scale), users.shape[1])
        scaled = (users * self._user_scale).contiguous()
        action_loops.sum_over_users(self._starts, self._items, scaled.numpy(), out.numpy())
        return out * self.item_scale


def _one_over_root(counts: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.maximum(counts, 1).astype(np.float32) ** -0.5).unsqueeze(-1)
