"""Hybrid hashing: a row for each of the most frequent ids, double hashing for all others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from ..budget import Budget, fit_to_budget, resolve_budget
from ..hashing import HashFamily
from ..scheme import INITIAL_STD, EmbeddingScheme, normal, seeded
from .frequent_rows import FrequentRows
from .shared_rows import SharedRows, sum_of_rows


class HybridHashing(EmbeddingScheme):
    """`num_frequent` ids have a row each; the others share a table of `num_rows` by `num_hashes` summed hashes.

    `assign_frequent` says which they are. (Appendix B.2: the top 10 %.)
    """

    open_vocabulary = True
    old_defaults: ClassVar[Mapping[str, Any]] = {"mixed": False}

    def __init__(
        self,
        embedding_dim: int,
        *,
        num_frequent: int,
        num_rows: int,
        num_hashes: int = 2,
        initial_std: float = INITIAL_STD,
        seed: int = 0,
        mixed: bool = True,
    ) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.num_frequent, self.num_rows, self.num_hashes = num_frequent, num_rows, num_hashes
        self.initial_std, self.seed, self.mixed = initial_std, seed, mixed
        generator = seeded(seed)
        self.frequent = FrequentRows(num_frequent, embedding_dim, std=initial_std, generator=generator)
        self.hashes = HashFamily(num_hashes, num_rows, seed, mixed=mixed)
        row_std = initial_std / math.sqrt(num_hashes)
        self.table = normal(num_rows, embedding_dim, std=row_std, generator=generator)

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        hashed = sum_of_rows(self.table, self.hashes(ids))
        if not self.num_frequent:
            return hashed
        rows, is_frequent = self.frequent(ids)
        return torch.where(is_frequent.unsqueeze(-1), rows, hashed)

    def assign_frequent(self, ids: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """The ids with the highest counts get a row each."""
        self.frequent.assign_most_frequent(ids, counts)

    @torch.no_grad()
    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """Rows of frequent ids are taken over as they are. The others are fitted by least squares on shared rows."""
        rest = ~self.frequent.take_over(ids, rows, weights)
        problem = SharedRows(self.hashes(ids[rest]), self.num_rows)
        self.table.copy_(problem.solve(rows[rest], weights=weights[rest], start=self.table))
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
        frequencies: Tensor | None = None,
    ) -> Self:
        """Rows for the most frequent tenth of the ids (of at most half the budget), and shared rows for the rest of it.

        `frequencies` [vocab_size] counts how often each id 0, 1, … occurs. Without it low ids count as frequent.
        """
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
        row = embedding_dim if allowed.unit == "parameters" else 4 * embedding_dim + 8  # with the id
        num_frequent = min(vocab_size // 10, allowed.amount // 2 // row)
        scheme = fit_to_budget(
            lambda rows: cls(embedding_dim, num_frequent=num_frequent, num_rows=rows, num_hashes=num_hashes, seed=seed),
            allowed,
        )
        if frequencies is not None:
            scheme.frequent.assign_by(frequencies, vocab_size=vocab_size)
        return scheme
