"""Hash embedding: a few shared rows, mixed by weights that belong to the id."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from ..hashing import HashFamily, derive_seed
from ..scheme import INITIAL_STD, Budget, EmbeddingScheme, fit_to_budget, normal, require_known, resolve_budget, seeded
from .weighted_rows import fit_by_turns


class HashEmbedding(EmbeddingScheme):
    """A weighted sum of `num_hashes` rows of a shared table of `num_rows`.

    `weights="dedicated"` gives each of `vocab_size` ids its own weights, as the paper's appendix B.2 does;
    `weights="hashed"` finds them by one more hash into as many places, which opens the scheme to new ids.
    """

    open_vocabulary = False
    old_defaults: ClassVar[Mapping[str, Any]] = {"mixed": False}

    def __init__(
        self,
        embedding_dim: int,
        *,
        vocab_size: int,
        num_rows: int,
        num_hashes: int = 2,
        weights: Literal["dedicated", "hashed"] = "dedicated",
        initial_std: float = INITIAL_STD,
        seed: int = 0,
        mixed: bool = True,
    ) -> None:
        super().__init__()
        if weights not in ("dedicated", "hashed"):
            raise ValueError(f"weights is {weights!r}; it must be 'dedicated' or 'hashed'")
        self.open_vocabulary = weights == "hashed"
        self.embedding_dim = embedding_dim
        self.vocab_size = vocab_size
        self.num_rows = num_rows
        self.num_hashes = num_hashes
        self.weights = weights
        self.initial_std = initial_std
        self.seed = seed
        self.mixed = mixed
        self.hashes = HashFamily(num_hashes, num_rows, seed, mixed=mixed)
        if weights == "hashed":
            self.weight_hash = HashFamily(1, vocab_size, derive_seed(seed, "importance"), mixed=mixed)
        row_std = initial_std / math.sqrt(num_hashes)
        self.table = normal(num_rows, embedding_dim, std=row_std, generator=seeded(seed))
        self.importance = nn.Parameter(torch.ones(vocab_size, num_hashes))  # from a plain sum, as in bloom

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        places = self._places(ids)
        rows = F.embedding(self.hashes(ids), self.table)  # [..., num_hashes, embedding_dim]
        return (rows * F.embedding(places, self.importance).unsqueeze(-1)).sum(-2)

    def _places(self, ids: Tensor) -> Tensor:
        """Where the weights of each id are."""
        if self.open_vocabulary:
            return self.weight_hash(ids)[..., 0]
        require_known(ids, self.vocab_size)
        return ids

    @torch.no_grad()
    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """By turns: the shared rows that are best for the weights, and the weights that are best for the rows."""
        table, importance = fit_by_turns(
            self.hashes(ids),
            self._places(ids),
            rows,
            metric=metric,
            weights=weights,
            table=self.table,
            importance=torch.ones_like(self.importance),
        )
        self.table.copy_(table)
        self.importance.copy_(importance)
        return self, torch.zeros_like(ids, dtype=torch.bool)

    @classmethod
    def from_budget(
        cls,
        budget: Budget,
        *,
        embedding_dim: int,
        vocab_size: int,
        seed: int = 0,
        num_hashes: int = 2,
        weights: Literal["dedicated", "hashed"] = "dedicated",
    ) -> Self:
        """As many rows as the budget pays for beside `num_hashes` weights for each id."""
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
        return fit_to_budget(
            lambda rows: cls(
                embedding_dim,
                vocab_size=vocab_size,
                num_rows=rows,
                num_hashes=num_hashes,
                weights=weights,
                seed=seed,
            ),
            allowed,
        )
