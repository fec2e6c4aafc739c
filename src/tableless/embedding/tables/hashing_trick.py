"""The hashing trick: fewer rows than ids, and a hash that says which ids share a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import Self

from ..budget import Budget, fit_to_budget, resolve_budget
from ..hashing import HashFamily
from ..scheme import INITIAL_STD, EmbeddingScheme, normal, seeded
from .shared_rows import set_means


class HashingTrick(EmbeddingScheme):
    """One hash into `num_rows` rows (section 2.2). The model can't tell ids apart that share a row."""

    open_vocabulary = True
    old_defaults: ClassVar[Mapping[str, Any]] = {"mixed": False}

    def __init__(
        self,
        embedding_dim: int,
        *,
        num_rows: int,
        initial_std: float = INITIAL_STD,
        seed: int = 0,
        mixed: bool = True,
    ) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.num_rows = num_rows
        self.initial_std = initial_std
        self.seed = seed
        self.mixed = mixed
        self.hashes = HashFamily(1, num_rows, seed, mixed=mixed)
        self.table = normal(num_rows, embedding_dim, std=initial_std, generator=seeded(seed))

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        return F.embedding(self.hashes(ids)[..., 0], self.table)

    @torch.no_grad()
    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """The mean is the best row for the ids that share it, in every metric."""
        set_means(self.table, self.hashes(ids)[..., 0], rows, weights)
        return self, torch.zeros_like(ids, dtype=torch.bool)

    @classmethod
    def from_budget(cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0) -> Self:
        """As many rows as the budget pays for."""
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
        return fit_to_budget(lambda rows: cls(embedding_dim, num_rows=rows, seed=seed), allowed)
