"""The full table: a row for each id."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import Self

from ..budget import BYTES_PER_PARAMETER, Budget, resolve_budget
from ..scheme import INITIAL_STD, EmbeddingScheme, normal, require_known, seeded
from .shared_rows import set_means


class FullEmbedding(EmbeddingScheme):
    """One-hot full embedding (section 2.1): `vocab_size · embedding_dim` parameters, ids 0 to `vocab_size` - 1."""

    open_vocabulary = False
    is_the_table = True

    def __init__(self, embedding_dim: int, *, vocab_size: int, initial_std: float = INITIAL_STD, seed: int = 0) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.vocab_size = vocab_size
        self.initial_std = initial_std
        self.seed = seed
        self.table = normal(vocab_size, embedding_dim, std=initial_std, generator=seeded(seed))

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        require_known(ids, self.vocab_size)
        return F.embedding(ids, self.table)

    @torch.no_grad()
    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """Every row is taken over as it is."""
        set_means(self.table, ids, rows, weights)
        return self, torch.zeros_like(ids, dtype=torch.bool)

    @classmethod
    def from_budget(cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0) -> Self:
        """The full table has one size; a smaller budget is an error."""
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
        # A budget of 1/1 is meant to be enough, so the map from raw ids to rows is not asked for here.
        needed = vocab_size * embedding_dim * (BYTES_PER_PARAMETER if allowed.unit == "bytes" else 1)
        if allowed.amount < needed:
            raise ValueError(f"a budget of {allowed} is too small; a full table for {vocab_size} ids has {needed}")
        return cls(embedding_dim, vocab_size=vocab_size, seed=seed)
