"""The backbone GMF, with or without a bias for the popularity of items."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ..embedding.scheme import EmbeddingScheme
from ..files.scheme_directory import require_kinds
from .backbone import Recommender, TableTarget, rows_of_table
from .pair_scores import pair_products
from .popularity import PopularityBias

# The table's scores are a sum over directions with weights σ, and an error counts in them by σ to the power ½. But the
# first direction is the popularity that all users share: by that power it would take nearly all attention. Half the
# power did best without batch norm, on the validation data of MovieLens-1M (docs/decisions.md; with batch norm ⅛ was
# just ahead).
_POWER = 0.25


class GMF(Recommender):
    """Generalised matrix factorisation: a weighted sum over the product of user and item vector (section 4.1.3).

    Args:
        users: The scheme of the users.
        items: The scheme of the items, with as many dimensions.
        popularity: What an item's popularity of late adds to its score, if anything; a stream is learned with it.
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
    scores_are_products = True
    table_decay = 0.2  # without it, a table overfits rare ids, and what learns from the table learns that, too

    def __init__(
        self,
        *,
        users: EmbeddingScheme,
        items: EmbeddingScheme,
        popularity: PopularityBias | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(users=users, items=items, seed=seed)
        self.weight = nn.Parameter(torch.ones(users.embedding_dim))  # plain matrix factorisation to begin with
        self.bias = nn.Parameter(torch.zeros(()))
        self.popularity = popularity

    @property
    def extra_config(self) -> dict[str, Any]:
        """That of popularity, where it counts."""
        return {} if self.popularity is None else {"popularity": self.popularity.config}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *, users: EmbeddingScheme, items: EmbeddingScheme, seed: int
    ) -> Self:
        """With popularity, if the config has it; the counts are among the weights."""
        popularity = None
        if "popularity" in config:
            require_kinds(PopularityBias, config["popularity"])
            popularity = PopularityBias(**config["popularity"])
        return cls(users=users, items=items, popularity=popularity, seed=seed)

    def with_schemes(self, *, users: EmbeddingScheme, items: EmbeddingScheme) -> Self:
        """Popularity is a copy."""
        return type(self)(users=users, items=items, popularity=copy.deepcopy(self.popularity), seed=self.seed)

    @property
    def needs_item_ids(self) -> bool:
        """Yes, if popularity counts: it is found by id."""
        return self.popularity is not None

    def with_features(self, vectors: Tensor, item_ids: Tensor) -> Tensor:
        """Each item's vector and then what its popularity adds, so that a score is still an inner product."""
        if self.popularity is None:
            return vectors
        return torch.cat([vectors, self.popularity(item_ids).unsqueeze(-1).to(vectors)], dim=-1)

    @property
    def embedding_bytes(self) -> int:
        """With the counts of popularity: a budget limits these as well."""
        return super().embedding_bytes + (0 if self.popularity is None else self.popularity.num_bytes)

    def sizes(self, num_ids: int | None) -> dict[str, Any]:
        """With the bytes of popularity."""
        sizes = super().sizes(num_ids)
        if self.popularity is not None:
            sizes["bytes_by_part"] |= {"popularity": {"counts": self.popularity.num_bytes}}
        return sizes

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Vectors [batch, dim] and [batch, candidates, item dim] -> [batch, candidates]."""
        return torch.bmm(items, self.prepare_users(users).unsqueeze(-1)).squeeze(-1) + self.bias

    def prepare_users(self, users: Tensor) -> Tensor:
        """The weight is applied once per user, not once per pair. Then a 1, by which popularity is taken."""
        weighted = users * self.weight
        return weighted if self.popularity is None else torch.cat([weighted, torch.ones_like(weighted[..., :1])], -1)

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

    def targets(self) -> dict[Literal["users", "items"], TableTarget]:
        """Factors of the same scores that share out each direction's weight σ evenly between users and items."""
        users, items = rows_of_table(self.users).double(), rows_of_table(self.items).double()
        user_basis, user_rest = _orthogonal(users * self.weight.detach().double())
        item_basis, item_rest = _orthogonal(items)
        left, sigma, right = torch.linalg.svd(user_rest @ item_rest.mT)
        metric = torch.diag((sigma / sigma.mean()) ** _POWER).float()
        return {
            "users": TableTarget((user_basis @ left * sigma.sqrt()).float(), metric),
            "items": TableTarget((item_basis @ right.mT * sigma.sqrt()).float(), metric),
        }

    def take_over(self, teacher: Self) -> None:
        """The bias alone: the teacher's weight is in its targets already."""
        super().take_over(teacher)
        with torch.no_grad():
            self.weight.fill_(1)


def _orthogonal(rows: Tensor) -> tuple[Tensor, Tensor]:
    """[n, dim] as a product [n, dim] · [dim, dim], of which the first is orthogonal, also where n is less than dim."""
    missing = max(0, rows.shape[1] - rows.shape[0])
    basis, rest = torch.linalg.qr(torch.cat([rows, rows.new_zeros(missing, rows.shape[1])]))
    return basis[: rows.shape[0]], rest
