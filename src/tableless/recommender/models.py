"""GMF and MLP: vectors → scores. Each is given its two schemes and cannot tell a network from a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..embedding.scheme import EmbeddingScheme, normal, seeded
from ..embedding.side_features import SideFeatures
from .pair_scores import Layers, after_first, pair_products, score_everything, score_pairs


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

    def forward(self, users: Tensor, items: Tensor, item_ids: Tensor | None = None) -> Tensor:
        """Users [batch] and items [batch, candidates] -> scores [batch, candidates]; each is embedded once.

        They are what the schemes are asked: ids, or the rows of a closed scheme. A model with item features also needs
        the ids of the items, which `item_ids` [batch, candidates] gives where `items` are rows.
        """
        distinct_users, user = torch.unique(users, return_inverse=True)
        distinct_items, item = torch.unique(items, return_inverse=True)
        ids = None
        if item_ids is not None:
            ids = torch.empty_like(distinct_items).scatter_(0, item.reshape(-1), item_ids.reshape(-1))
        return self.score_distinct(distinct_users, distinct_items, user, item, ids)

    def score_distinct(
        self, users: Tensor, items: Tensor, user: Tensor, item: Tensor, item_ids: Tensor | None = None
    ) -> Tensor:
        """Distinct users and items and, for each of a batch, which of them are meant: [batch], [batch, candidates]."""
        user_parts = self.prepare_users(self.user_vectors(users))
        return self.score_pairs(user_parts, self.prepare_items(self.item_vectors(items, item_ids)), user, item)

    def user_vectors(self, users: Tensor) -> Tensor:
        """What `score` needs of a user: [..., dim]."""
        return self.users(users)

    def item_vectors(self, items: Tensor, item_ids: Tensor | None = None) -> Tensor:
        """What `score` needs of an item: [..., dim]. `items` are what the scheme is asked, `item_ids` their ids."""
        return self.with_features(self.items(items), items if item_ids is None else item_ids)

    def with_features(self, vectors: Tensor, item_ids: Tensor) -> Tensor:
        """Item vectors as `score` wants them; a model that has item features puts them behind."""
        return vectors

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
    def score_pairs(self, users: Tensor, items: Tensor, user: Tensor, item: Tensor) -> Tensor:
        """Prepared [users, …] and [items, …], positions in them [batch] and [batch, n] -> [batch, n], to train on."""

    @abstractmethod
    def score_all(self, users: Tensor, items: Tensor) -> Tensor:
        """Prepared [users, …] and [items, …] -> [users, items]."""

    @abstractmethod
    def score_lists(self, users: Tensor, items: Tensor, item: Tensor) -> Tensor:
        """Prepared [users, …] and [items, …], positions in the latter for each user [users, n] -> [users, n]."""

    @property
    def needs_item_ids(self) -> bool:
        """Does a score depend on more than what the schemes are asked: on features, which are kept by id?"""
        return False

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
    """Generalised matrix factorisation: a weighted sum over the product of user and item vector (section 4.1.3).

    Args:
        users: The scheme of the users.
        items: The scheme of the items, with as many dimensions.
        seed: Not used, because every weight starts at one; there because every backbone has it.

    Example:
        ```python
        import torch
        from tableless import GMF, DeepHashEmbedding, to_ids

        users = DeepHashEmbedding.from_budget(20_000, embedding_dim=16, vocab_size=1_000)
        items = DeepHashEmbedding.from_budget(20_000, embedding_dim=16, vocab_size=1_000, seed=1)
        model = GMF(users=users, items=items)
        scores = model(to_ids(["ann", "ben"]), torch.tensor([[1, 2, 3], [1, 2, 3]]))  # [2, 3], logits
        ```
    """

    pairs_per_second = 2e8

    def __init__(self, *, users: EmbeddingScheme, items: EmbeddingScheme, seed: int = 0) -> None:
        super().__init__(users=users, items=items, seed=seed)
        self.weight = nn.Parameter(torch.ones(users.embedding_dim))  # plain matrix factorisation to begin with
        self.bias = nn.Parameter(torch.zeros(()))

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """[batch, dim], [batch, candidates, dim] -> [batch, candidates]."""
        return torch.bmm(items, (users * self.weight).unsqueeze(-1)).squeeze(-1) + self.bias

    def prepare_users(self, users: Tensor) -> Tensor:
        """The weight is applied once per user, not once per pair."""
        return users * self.weight

    def prepare_items(self, items: Tensor) -> Tensor:
        """Nothing to prepare."""
        return items

    def score_pairs(self, users: Tensor, items: Tensor, user: Tensor, item: Tensor) -> Tensor:
        """Inner products, without a copy of the vectors for each pair."""
        return pair_products(users, items, user, item) + self.bias

    def score_all(self, users: Tensor, items: Tensor) -> Tensor:
        """One matrix product."""
        return torch.addmm(self.bias, users, items.T)

    def score_lists(self, users: Tensor, items: Tensor, item: Tensor) -> Tensor:
        """As in training."""
        return self.score_pairs(users, items, torch.arange(len(users), device=users.device), item)


class MLP(Recommender):
    """A deep network over user and item vector side by side: 256, 128, 64, then `embedding_dim` (section 4.1.3).

    Args:
        users: The scheme of the users.
        items: The scheme of the items, with as many dimensions.
        item_features: What is known of the items, by id. They enter beside the item's vector (section 4.8, RQ5).
        seed: The first weights of the network follow from it.

    Example:
        ```python
        import torch
        from tableless import MLP, DeepHashEmbedding, to_ids

        users = DeepHashEmbedding.from_budget(20_000, embedding_dim=16, vocab_size=1_000)
        items = DeepHashEmbedding.from_budget(20_000, embedding_dim=16, vocab_size=1_000, seed=1)
        model = MLP(users=users, items=items)
        scores = model(to_ids(["ann", "ben"]), torch.tensor([[1, 2, 3], [1, 2, 3]]))  # [2, 3], logits
        ```
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

    @property
    def needs_item_ids(self) -> bool:
        """It does, if it has item features."""
        return self.item_features is not None

    def item_vectors(self, items: Tensor, item_ids: Tensor | None = None) -> Tensor:
        """The item's vector, with its features behind it. Features are found by id, never by row."""
        if self.needs_item_ids and item_ids is None and not self.items.open_vocabulary:
            raise ValueError(
                "this model has item features, which are kept by id, and a table whose rows are no ids; "
                "give the ids of the items as well (item_ids)"
            )
        return super().item_vectors(items, item_ids)

    def with_features(self, vectors: Tensor, item_ids: Tensor) -> Tensor:
        """The features of each item behind its vector."""
        if self.item_features is None:
            return vectors
        return torch.cat([vectors, self.item_features(item_ids)], dim=-1)

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """[batch, dim], [batch, candidates, item dim] -> [batch, candidates]."""
        return after_first(self.prepare_users(users).unsqueeze(-2) + self.prepare_items(items), self._later_layers())

    def prepare_users(self, users: Tensor) -> Tensor:
        """The user's half of the first layer."""
        return nn.functional.linear(users, self.first.weight[:, : users.shape[-1]], self.first.bias)

    def prepare_items(self, items: Tensor) -> Tensor:
        """The item's half of the first layer."""
        return nn.functional.linear(items, self.first.weight[:, -items.shape[-1] :])

    def score_pairs(self, users: Tensor, items: Tensor, user: Tensor, item: Tensor) -> Tensor:
        """The first layer is computed once for each distinct user and item, and only added up here."""
        return score_pairs(users, items, user, item, self._later_layers())

    def score_all(self, users: Tensor, items: Tensor) -> Tensor:
        """The first layer is only added up; the others run over every pair."""
        return score_everything(users, items, self._later_layers())

    def score_lists(self, users: Tensor, items: Tensor, item: Tensor) -> Tensor:
        """As `score_all`, over the items of each user's list."""
        return score_everything(users, items, self._later_layers(), lists=item)

    def _later_layers(self) -> Layers:
        return [(layer.weight, layer.bias) for layer in (*self.layers, self.output)]


BACKBONES: dict[str, type[GMF] | type[MLP]] = {"gmf": GMF, "mlp": MLP}


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """A layer that keeps the scale of what a ReLU leaves, drawn from the model's own generator."""
    linear = nn.Linear(inputs, outputs, device="meta")
    linear.weight = normal(outputs, inputs, std=(2 / inputs) ** 0.5, generator=generator)
    linear.bias = nn.Parameter(torch.zeros(outputs))
    return linear
