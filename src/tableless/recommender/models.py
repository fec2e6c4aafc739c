"""The backbone MLP, and a recommender as plain values: what `config.json` says of it, and the way back."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ..embedding.scheme import EmbeddingScheme, normal, seeded
from ..embedding.side_features import SideFeatures
from ..files.scheme_directory import build_scheme, describe_scheme, require_kinds
from ..hints import require_known_name
from .backbone import Recommender, TableTarget, rows_of_table
from .gmf import GMF
from .pair_scores import Layers, after_first, score_everything, score_pairs


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

        users, items = (DeepHashEmbedding(16, num_hashes=64, width=32, depth=2, seed=seed) for seed in (0, 1))
        model = MLP(users=users, items=items)
        scores = model(to_ids(["ann", "ben"]), torch.tensor([[1, 2, 3], [1, 2, 3]]))  # [2, 3], logits
        ```
    """

    pairs_per_second = 2e6
    learns_from = (GMF,)  # from actions alone, a table under a network overfits too soon (docs/decisions.md)
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
    def extra_config(self) -> dict[str, Any]:
        """The features' config, where there are any."""
        return {} if self.item_features is None else {"item_features": self.item_features.config}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *, users: EmbeddingScheme, items: EmbeddingScheme, seed: int
    ) -> Self:
        """With item features, if the config has them; their values are among the weights."""
        features = None
        if "item_features" in config:
            require_kinds(SideFeatures, config["item_features"])
            features = SideFeatures(**config["item_features"])
        return cls(users=users, items=items, item_features=features, seed=seed)

    def with_schemes(self, *, users: EmbeddingScheme, items: EmbeddingScheme) -> Self:
        """The features are a copy, so that both models can be saved in one file."""
        features = copy.deepcopy(self.item_features)
        return type(self)(users=users, items=items, item_features=features, seed=self.seed)

    @property
    def needs_item_ids(self) -> bool:
        """Yes, if it has item features."""
        return self.item_features is not None

    def item_vectors(self, items: Tensor, item_ids: Tensor | None = None) -> Tensor:
        """The item's vector and then its features. Features are found by id, never by row."""
        if self.needs_item_ids and item_ids is None and not self.items.open_vocabulary:
            raise ValueError(
                "this model has item features, which are kept by id, and a table whose rows are no ids; "
                "give the ids of the items as well (item_ids)"
            )
        return super().item_vectors(items, item_ids)

    def with_features(self, vectors: Tensor, item_ids: Tensor) -> Tensor:
        """Each item's vector and then its features."""
        if self.item_features is None:
            return vectors
        return torch.cat([vectors, self.item_features(item_ids)], dim=-1)

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Vectors [batch, dim] and [batch, candidates, item dim] -> [batch, candidates]."""
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

    def targets(self) -> dict[Literal["users", "items"], TableTarget]:
        """The tables themselves; an error counts by what the first layer makes of it."""
        dim, first = self.users.embedding_dim, self.first.weight.detach()
        return {
            "users": TableTarget(rows_of_table(self.users), first[:, :dim].mT.contiguous()),
            "items": TableTarget(rows_of_table(self.items), first[:, dim : 2 * dim].mT.contiguous()),
        }

    def _later_layers(self) -> Layers:
        return [(layer.weight, layer.bias) for layer in (*self.layers, self.output)]


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """A layer that keeps the scale of what a ReLU leaves, drawn from the model's own generator."""
    linear = nn.Linear(inputs, outputs, device="meta")
    linear.weight = normal(outputs, inputs, std=(2 / inputs) ** 0.5, generator=generator)
    linear.bias = nn.Parameter(torch.zeros(outputs))
    return linear


__all__ = ["BACKBONES", "GMF", "MLP", "Recommender", "build_recommender", "describe_recommender", "find_backbone"]

BACKBONES: dict[str, type[Recommender]] = {"gmf": GMF, "mlp": MLP}
"""Every backbone by the name it has in flags and files. A new one is a class and a line here."""


def find_backbone(name: str) -> type[Recommender]:
    """The backbone of this name."""
    require_known_name("backbone", name, BACKBONES)
    return BACKBONES[name]


def describe_recommender(model: Recommender) -> dict[str, Any]:
    """A recommender without its weights, as plain values."""
    return {
        "backbone": next(name for name, kind in BACKBONES.items() if kind is type(model)),
        "users": describe_scheme(model.users),
        "items": describe_scheme(model.items),
        "seed": model.seed,
        **model.extra_config,
    }


def build_recommender(description: Mapping[str, Any]) -> Recommender:
    """The recommender that was described, with its starting weights."""
    backbone = find_backbone(description["backbone"])
    users, items = build_scheme(description["users"]), build_scheme(description["items"])
    return backbone.from_config(description, users=users, items=items, seed=description["seed"])
