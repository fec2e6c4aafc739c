"""Bloom embedding: an id's vector is the sum of several hashed rows. Ids collide only if they share all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from ..budget import Budget, fit_to_budget, resolve_budget
from ..hashing import HashFamily
from ..scheme import INITIAL_STD, EmbeddingScheme, normal, seeded
from .shared_rows import SharedRows, sum_of_rows


class BloomEmbedding(EmbeddingScheme):
    """The sum of `num_hashes` rows of a table of `num_rows` (section 4.2, with k = 2 as there)."""

    open_vocabulary = True
    old_defaults: ClassVar[Mapping[str, Any]] = {"mixed": False}

    def __init__(
        self,
        embedding_dim: int,
        *,
        num_rows: int,
        num_hashes: int = 2,
        initial_std: float = INITIAL_STD,
        seed: int = 0,
        mixed: bool = True,
    ) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.num_rows = num_rows
        self.num_hashes = num_hashes
        self.initial_std = initial_std
        self.seed = seed
        self.mixed = mixed
        self.hashes = HashFamily(num_hashes, num_rows, seed, mixed=mixed)
        row_std = initial_std / math.sqrt(num_hashes)
        self.table = normal(num_rows, embedding_dim, std=row_std, generator=seeded(seed))

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        return sum_of_rows(self.table, self.hashes(ids))

    @torch.no_grad()
    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """Least squares on the shared rows. Each dimension is solved alone, so the metric does not matter."""
        problem = SharedRows(self.hashes(ids), self.num_rows)
        self.table.copy_(problem.solve(rows, weights=weights, start=self.table))
        return self, torch.zeros_like(ids, dtype=torch.bool)

    @classmethod
    def from_budget(
        cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0, num_hashes: int = 2
    ) -> Self:
        """As many rows as the budget pays for."""
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
        return fit_to_budget(lambda rows: cls(embedding_dim, num_rows=rows, num_hashes=num_hashes, seed=seed), allowed)
