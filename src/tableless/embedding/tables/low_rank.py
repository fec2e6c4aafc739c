"""The low-rank table: a narrow row per id and one linear map up, the baseline that is hard to beat."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor
from typing_extensions import Self

from ..scheme import INITIAL_STD, Budget, EmbeddingScheme, fit_to_budget, normal, require_known, resolve_budget, seeded


class LowRankEmbedding(EmbeddingScheme):
    """`rank` numbers per id, mapped linearly to `embedding_dim`: `vocab_size·rank + rank·embedding_dim` parameters."""

    open_vocabulary = False

    def __init__(
        self,
        embedding_dim: int,
        *,
        vocab_size: int,
        rank: int,
        initial_std: float = INITIAL_STD,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.vocab_size = vocab_size
        self.rank = rank
        self.initial_std = initial_std
        self.seed = seed
        generator = seeded(seed)
        self.table = normal(vocab_size, rank, std=initial_std, generator=generator)
        self.projection = normal(rank, embedding_dim, std=1 / math.sqrt(rank), generator=generator)

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        require_known(ids, self.vocab_size)
        return F.embedding(ids, self.table) @ self.projection

    @classmethod
    def from_budget(cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0) -> Self:
        """The highest rank the budget pays for; beyond `embedding_dim` it would only be a full table with a detour."""
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
        return fit_to_budget(
            lambda rank: cls(embedding_dim, vocab_size=vocab_size, rank=rank, seed=seed),
            allowed,
            largest=embedding_dim,
        )
