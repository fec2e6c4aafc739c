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


@torch.no_grad()
def beyond_chance(split: Split, dim: int, *, seed: int = 0) -> float:
    """How far the weakest of `dim` directions stands out of chance: 1 for actions that follow no pattern.

    It is a singular value, divided by that of the same actions with their items dealt out anew, so that every user and
    item keeps its number of actions. Check-ins at places have 2.0 (people stay near), films and books 1.0 to 1.5.
    """
    generator = seeded(seed)
    weakest = []
    for items in (np.asarray(split.train.items), _dealt_out_anew(split, seed)):
        sigma = _decomposed(_Actions(split, items), dim, generator)[1]
        weakest.append(float(sigma[: dim + 1][-1]))  # the first direction is popularity, by chance as well
    return weakest[0] / max(weakest[1], 1e-12)


def _dealt_out_anew(split: Split, seed: int) -> NDArray[np.int32]:
    return np.random.default_rng(seed).permutation(np.asarray(split.train.items))


def _spectrum(split: Split, dim: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows of users and of items, [known, dim] or fewer columns where there are fewer ids than dimensions.

    An item's row is longer the more often it was chosen, as in the scores of a trained table.
    """
    actions = _Actions(split, np.asarray(split.train.items))
    left, sigma, right = _decomposed(actions, dim, generator)
    scale = sigma[:dim].sqrt()
    return left[:, :dim] * scale, right[:, :dim] * scale / actions.item_scale


def _decomposed(actions: _Actions, dim: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """The first singular vectors of users and of items, and their singular values, some more than `dim`."""
    num_users, num_items = len(actions.user_scale), len(actions.item_scale)
    basis = torch.randn(num_items, min(dim + _MORE_DIRECTIONS, num_users, num_items), generator=generator)
    for _ in range(_ROUNDS):
        basis = torch.linalg.qr(actions.to_items(actions.to_users(basis)))[0]
    left, sigma, right = torch.linalg.svd(actions.to_users(basis), full_matrices=False)
    return left, sigma, basis @ right.mT


class _Actions:
    """The matrix of users and items, as two products with it. `items` are those of the actions, user by user."""

    def __init__(self, split: Split, items: NDArray[np.int32]) -> None:
        num_users, num_items = split.num_known_users, split.num_known_items
        self._starts, self._items = np.asarray(split.train.starts)[: num_users + 1], items
        counts = np.bincount(self._items, minlength=num_items)[:num_items]
        self.item_scale = _one_over_root(counts)
        self.user_scale = _one_over_root(np.diff(self._starts))

    def to_users(self, items: Tensor) -> Tensor:
        """[items, width] -> [users, width]."""
        from ..kernels import action_loops

        out = torch.empty(len(self.user_scale), items.shape[1])
        scaled = (items * self.item_scale).contiguous()
        action_loops.sum_over_items(self._starts, self._items, scaled.numpy(), out.numpy())
        return out * self.user_scale

    def to_items(self, users: Tensor) -> Tensor:
        """[users, width] -> [items, width]."""
        from ..kernels import action_loops

        out = torch.empty(len(self.item_scale), users.shape[1])
        scaled = (users * self.user_scale).contiguous()
        action_loops.sum_over_users(self._starts, self._items, scaled.numpy(), out.numpy())
        return out * self.item_scale


def _one_over_root(counts: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.maximum(counts, 1).astype(np.float32) ** -0.5).unsqueeze(-1)
