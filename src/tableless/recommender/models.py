"""GMF and MLP: vectors → scores. Each is given its two schemes and cannot tell a network from a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..embedding.scheme import EmbeddingScheme, normal, seeded
from ..embedding.side_features import SideFeatures
from .pair_network import Layers, after_first, score_everything, score_pairs
from .pairs import pair_products


class Recommender(nn.Module, ABC):
    """Scores how likely a user is to choose an item (a logit)."""

    pairs_per_second: ClassVar[float]
    """How many user–item pairs `score_all` does in a second on two cores, roughly: what decides whether an evaluation
    is exact or sampled."""

    def __init__(self, *, users: EmbeddingScheme, items: EmbeddingScheme, seed: int) -> None:
        super().__init__()
        if users.embedding_dim != items.embedding_dim:
            raise ValueError(
                f"users have {users.embedding_dim} dimensions and items {items.embedding_dim}; they must agree"
            )
        self.users = users
        self.items = items
        self.seed = seed

    def forward(self, user_ids: Tensor, item_ids: Tensor) -> Tensor:
        """Ids [batch] and [batch, candidates] -> scores [batch, candidates]; each distinct id is embedded once."""
        distinct_users, user = torch.unique(user_ids, return_inverse=True)
        distinct_items, item = torch.unique(item_ids, return_inverse=True)
        return self.score_distinct(distinct_users, distinct_items, user, item)

    def score_distinct(self, user_ids: Tensor, item_ids: Tensor, user: Tensor, item: Tensor) -> Tensor:
        """Distinct ids and, for each of a batch, which of them are meant: [batch] and [batch, candidates]."""
        users, items = self.user_vectors(user_ids), self.item_vectors(item_ids)
        return self.score(users[user], items[item])

    def user_vectors(self, user_ids: Tensor) -> Tensor:
        """What `score` needs of a user: [..., dim]."""
        return self.users(user_ids)

    def item_vectors(self, item_ids: Tensor) -> Tensor:
        """What `score` needs of an item: [..., dim]."""
        return self.items(item_ids)

    @abstractmethod
    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Vectors [batch, dim] and [batch, candidates, dim] -> [batch, candidates]."""

    @abstractmethod
    def prepare_users(self, users: Tensor) -> Tensor:
        """The part of a score that depends on the user alone, for `score_all`."""

    @abstractmethod
    def prepare_items(self, items: Tensor) -> Tensor:
        """The part of a score that depends on the item alone, for `score_all`."""

    @abstractmethod
    def score_all(self, users: Tensor, items: Tensor) -> Tensor:
        """Prepared [users, …] and [items, …] -> [users, items]."""

    @property
    def answers_new_ids(self) -> bool:
        """Do both schemes answer for ids that were not in training?"""
        return self.users.open_vocabulary and self.items.open_vocabulary

    @property
    def embedding_parameters(self) -> int:
        """Trainable parameters of the two schemes, which is what a budget is about."""
        return self.users.num_parameters + self.items.num_parameters

    @property
    def num_parameters(self) -> int:
        """All trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters())


class GMF(Recommender):
    """Generalised matrix factorisation: a weighted sum over the product of user and item vector (section 4.1.3)."""

    pairs_per_second = 2e8

    def __init__(self, *, users: EmbeddingScheme, items: EmbeddingScheme, seed: int = 0) -> None:
        super().__init__(users=users, items=items, seed=seed)
        self.weight = nn.Parameter(torch.ones(users.embedding_dim))  # plain matrix factorisation to begin with
        self.bias = nn.Parameter(torch.zeros(()))

    def score_distinct(self, user_ids: Tensor, item_ids: Tensor, user: Tensor, item: Tensor) -> Tensor:
        """As for any recommender, without a copy of the vectors for each pair."""
        users = self.prepare_users(self.user_vectors(user_ids))
        return pair_products(users, self.item_vectors(item_ids), user, item) + self.bias

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """[batch, dim], [batch, candidates, dim] -> [batch, candidates]."""
        return torch.bmm(items, (users * self.weight).unsqueeze(-1)).squeeze(-1) + self.bias

    def prepare_users(self, users: Tensor) -> Tensor:
        """The weight is applied once per user, not once per pair."""
        return users * self.weight

    def prepare_items(self, items: Tensor) -> Tensor:
        """Nothing to prepare."""
        return items

    def score_all(self, users: Tensor, items: Tensor) -> Tensor:
        """One matrix product."""
        return torch.addmm(self.bias, users, items.T)


class MLP(Recommender):
    """A deep network over user and item vector side by side: 256, 128, 64, then `embedding_dim` (section 4.1.3).

    `item_features`, if given, enter beside the item's vector (section 4.8, RQ5).
    """

    pairs_per_second = 2e6
    HIDDEN = (256, 128, 64)

    def __init__(
        self,
        *,
        users: EmbeddingScheme,
        items: EmbeddingScheme,
        item_features: SideFeatures | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(users=users, items=items, seed=seed)
        self.item_features = item_features
        generator = seeded(seed)
        dim = users.embedding_dim
        item_dim = dim + (item_features.code_dim if item_features else 0)
        sizes = [dim + item_dim, *self.HIDDEN, dim]
        self.first = _linear(sizes[0], sizes[1], generator)
        self.layers = nn.ModuleList(_linear(before, after, generator) for before, after in pairwise(sizes[1:]))
        self.output = _linear(dim, 1, generator)

    def item_vectors(self, item_ids: Tensor) -> Tensor:
        """The item's vector, with its features behind it."""
        vectors = self.items(item_ids)
        if self.item_features is None:
            return vectors
        return torch.cat([vectors, self.item_features(item_ids)], dim=-1)

    def score_distinct(self, user_ids: Tensor, item_ids: Tensor, user: Tensor, item: Tensor) -> Tensor:
        """As for any recommender; the first layer is computed once for each distinct id."""
        users = self.prepare_users(self.user_vectors(user_ids))
        return score_pairs(users, self.prepare_items(self.item_vectors(item_ids)), user, item, self._later_layers())

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """[batch, dim], [batch, candidates, item dim] -> [batch, candidates]."""
        return after_first(self.prepare_users(users).unsqueeze(-2) + self.prepare_items(items), self._later_layers())

    def prepare_users(self, users: Tensor) -> Tensor:
        """The user's half of the first layer."""
        return nn.functional.linear(users, self.first.weight[:, : users.shape[-1]], self.first.bias)

    def prepare_items(self, items: Tensor) -> Tensor:
        """The item's half of the first layer."""
        return nn.functional.linear(items, self.first.weight[:, -items.shape[-1] :])

    def score_all(self, users: Tensor, items: Tensor) -> Tensor:
        """The first layer is only added up; the others run over every pair."""
        return score_everything(users, items, self._later_layers())

    def _later_layers(self) -> Layers:
        return [(layer.weight, layer.bias) for layer in (*self.layers, self.output)]


BACKBONES: dict[str, type[GMF] | type[MLP]] = {"gmf": GMF, "mlp": MLP}


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """A layer that keeps the scale of what a ReLU leaves, drawn from the model's own generator."""
    linear = nn.Linear(inputs, outputs, device="meta")
    linear.weight = normal(outputs, inputs, std=(2 / inputs) ** 0.5, generator=generator)
    linear.bias = nn.Parameter(torch.zeros(outputs))
    return linear
