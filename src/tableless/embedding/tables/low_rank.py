"""The low-rank table: a short row for each id, and one linear map to the full length. It is hard to beat."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from ..budget import Budget, fit_to_budget, resolve_budget
from ..rounded_matrix import all_of, make_matrix, pack_all, rows_of, unpack_all, values_of
from ..rounding import require_bits
from ..scheme import INITIAL_STD, EmbeddingScheme, normal, require_known, seeded
from .shared_rows import mean_of_sharers

_BEST_BITS, _MORE_BITS = 4, (32, 16, 8)
_FEWEST_BITS_OF_MAP = 8  # it is small, and every vector depends on it


class LowRankEmbedding(EmbeddingScheme):
    """`rank` numbers per id, mapped linearly to `embedding_dim`: `vocab_size·rank + rank·embedding_dim` parameters.

    `weight_bits` says how the numbers are stored: 32 is float32, 16 bfloat16, 8 and fewer are integers with a scale for
    each row.
    """

    open_vocabulary = False
    old_defaults: ClassVar[Mapping[str, Any]] = {"weight_bits": 32, "packed": False}
    tuning_rate = 3e-3  # chosen on validation data, from 3e-4 to 1e-2 (docs/tried.md)

    def __init__(
        self,
        embedding_dim: int,
        *,
        vocab_size: int,
        rank: int,
        initial_std: float = INITIAL_STD,
        weight_bits: int = 32,
        packed: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        require_bits("weight_bits", weight_bits)
        self.embedding_dim = embedding_dim
        self.vocab_size = vocab_size
        self.rank = rank
        self.initial_std = initial_std
        self.weight_bits = weight_bits
        self.packed = packed
        self.seed = seed
        generator = seeded(seed)
        rows, map_to_rows = (vocab_size, rank), (rank, embedding_dim)
        self.table = make_matrix(
            lambda: normal(*rows, std=initial_std, generator=generator), rows, bits=weight_bits, packed=packed
        )
        self.projection = make_matrix(
            lambda: normal(*map_to_rows, std=1 / math.sqrt(rank), generator=generator),
            map_to_rows,
            bits=max(weight_bits, _FEWEST_BITS_OF_MAP),
            packed=packed,
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        require_known(ids, self.vocab_size)
        return rows_of(self.table, ids) @ all_of(self.projection)

    def pack(self) -> None:
        """Round the table and the map for good."""
        pack_all(self)
        self.packed = True

    def unpack(self) -> None:
        """Make the table and the map trainable again."""
        unpack_all(self)
        self.packed = False

    @torch.no_grad()
    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """The best table of this rank, by a truncated singular value decomposition in the metric."""
        means, totals = mean_of_sharers(ids, rows, weights, self.vocab_size)
        counted = means.double() @ metric.double()
        # The eigenvectors of a small matrix are the right singular vectors. The left ones, with a row for each id, are
        # not needed.
        _, directions = torch.linalg.eigh(counted.mT @ (counted * totals.double().unsqueeze(-1)))
        kept = directions.flip(-1)[:, : self.rank]  # [n, at most rank], those with the largest values first
        back = kept.mT @ torch.linalg.pinv(metric.double())
        # With orthonormal directions a step in the table moves a vector as far as the same step in a full table, and
        # training goes on at the usual rate. If the rank is higher than needed, further directions stay as they were.
        basis, triangle = torch.linalg.qr(back.mT)
        table = counted @ kept @ triangle.mT
        num_kept = basis.shape[-1]
        is_given = (totals > 0).unsqueeze(-1)
        own, projection = values_of(self.table), values_of(self.projection)
        own[:, :num_kept] = torch.where(is_given, table.to(own), own[:, :num_kept])
        own[:, num_kept:] = 0
        projection[:num_kept] = basis.mT.to(projection)
        return self, torch.zeros_like(ids, dtype=torch.bool)

    @classmethod
    def from_budget(
        cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0, weight_bits: int | None = None
    ) -> Self:
        """The highest rank the budget pays for, but at most `embedding_dim`: more would add nothing.

        Unless `weight_bits` are given, a number of parameters is spent on numbers of 32 bits. A budget in bytes is
        spent on numbers of `_BEST_BITS`, or more if it pays for the highest rank in more.
        """
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
        build = partial(cls, embedding_dim, vocab_size=vocab_size, seed=seed)
        bits = weight_bits or (32 if allowed.unit == "parameters" else _BEST_BITS)
        for more in _MORE_BITS if bits == _BEST_BITS and not weight_bits else ():
            with torch.device("meta"):
                fits = allowed.cost(build(rank=embedding_dim, weight_bits=more)) <= allowed.amount
            if fits:
                return build(rank=embedding_dim, weight_bits=more)
        return fit_to_budget(lambda rank: build(rank=rank, weight_bits=bits), allowed, largest=embedding_dim)
