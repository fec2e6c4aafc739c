"""Head and tail: a table for frequent ids and a network for the others (section 5 of the paper, future work)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import Self

from .budget import Budget, resolve_budget
from .deep_hash import DeepHashEmbedding, network_arguments
from .id_batches import checked_ids
from .rounded_matrix import pack_all, unpack_all
from .rounding import bytes_for, require_bits
from .scheme import INITIAL_STD, EmbeddingScheme, Precision, Served, seeded
from .tables.frequent_rows import FrequentRows

_HEAD_SHARE = 0.1  # on ML-1M at 1/4 more rows meant a lower validation AUC (docs/decisions.md)
_FEWEST_BITS_OF_ROWS = 8  # with which rows lose nothing


class HeadAndTail(EmbeddingScheme):
    """The `num_frequent` most frequent ids have a row each (`head`); a deep hash embedding computes the rest (`tail`).

    `assign_frequent` says which they are. `network` are the arguments of the `DeepHashEmbedding`. Rows are stored in
    `row_bits` for each number (32 is float32), the weights of the network in its own `weight_bits`.
    """

    open_vocabulary = True
    is_computed = True
    old_defaults: ClassVar[Mapping[str, Any]] = {"row_bits": 32, "packed": False}

    def __init__(
        self,
        embedding_dim: int,
        *,
        num_frequent: int,
        network: Mapping[str, Any],
        initial_std: float = INITIAL_STD,
        row_bits: int = 32,
        packed: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        require_bits("row_bits", row_bits)
        self.embedding_dim = embedding_dim
        self.num_frequent = num_frequent
        self.initial_std = initial_std
        self.row_bits = row_bits
        self.packed = packed
        self.seed = seed
        self.head = FrequentRows(
            num_frequent, embedding_dim, std=initial_std, generator=seeded(seed), bits=row_bits, packed=packed
        )
        self.tail = DeepHashEmbedding(embedding_dim, **network, initial_std=initial_std, packed=packed, seed=seed)
        self.network = network_arguments(self.tail)  # plain values: of side features only their kind

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 or int32 [...] -> [..., embedding_dim], in the type of the weights."""
        ids = checked_ids(ids)
        if not self.num_frequent:
            return self.tail(ids)
        if torch.compiler.is_compiling():
            return _both(ids, self.head, self.tail)
        rows, is_frequent = self.head(ids.reshape(-1))
        rest = (~is_frequent).nonzero().squeeze(-1)
        computed = self.tail(ids.reshape(-1)[rest])
        return rows.index_copy(0, rest, computed.to(rows)).view(*ids.shape, self.embedding_dim)

    def assign_frequent(self, ids: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """The ids with the highest counts get a row each."""
        self.head.assign_most_frequent(ids, counts)

    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """The head's rows are taken over as they are; the tail has to learn the others."""
        learner, _ = self.tail.fit_directly(ids, rows, metric=metric, weights=weights)
        return learner, ~self.head.take_over(ids, rows, weights)

    def learned_part(self, ids: Tensor) -> tuple[EmbeddingScheme, Tensor]:
        """The tail, and ids without a row."""
        return self.tail, ~self.head.find(ids)[1]

    def pack(self) -> None:
        """Round rows and weights for good."""
        self.tail.pack()
        pack_all(self.head)
        self.packed = True

    def unpack(self) -> None:
        """Make rows and weights trainable again."""
        self.tail.unpack()
        unpack_all(self.head)
        self.packed = False

    def expect_training_from_nothing(self) -> None:
        """Do not warn for the tail."""
        self.tail.expect_training_from_nothing()

    def served(self, precision: Precision, sample_ids: Tensor) -> Served:
        """The rows of the head, and the tail as it is served."""
        tail = self.tail.served(precision, sample_ids)
        if not self.num_frequent:
            return tail

        def vectors(ids: Tensor) -> Tensor:
            rows, is_frequent = self.head(ids)
            rest = (~is_frequent).nonzero().squeeze(-1)
            return rows.float().index_copy_(0, rest, tail.vectors(ids[rest]))

        return Served(vectors, tail.precision)

    def exported(self) -> nn.Module:
        """The rows of the head, and the tail as it is exported."""
        tail = self.tail.exported()
        return _Exported(self.head, tail) if self.num_frequent else tail

    @classmethod
    def from_budget(
        cls,
        budget: Budget,
        *,
        embedding_dim: int,
        vocab_size: int,
        seed: int = 0,
        head_share: float = _HEAD_SHARE,
        frequencies: Tensor | None = None,
        **options: Any,
    ) -> Self:
        """`head_share` of the budget for rows, the rest for the network, whose `from_budget` gets the `options`.

        If the weights of the network have 8 bits or fewer, the numbers of a row have 8.
        `frequencies` [vocab_size] counts how often each id 0, 1, … occurs. Without it low ids count as frequent.
        """
        if not 0 <= head_share < 1:
            raise ValueError(f"head_share is {head_share}; it must be at least 0 and less than 1")
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
        sizes: dict[str, Any] = {"embedding_dim": embedding_dim, "vocab_size": vocab_size, **options}
        whole = partial(DeepHashEmbedding.from_budget, allowed, **sizes)
        with torch.device("meta"):
            row_bits = max(whole().weight_bits, _FEWEST_BITS_OF_ROWS)
        row = embedding_dim if allowed.unit == "parameters" else _bytes_of_row(embedding_dim, row_bits)
        num_frequent = min(int(allowed.amount * head_share) // row, vocab_size)
        try:
            tail = DeepHashEmbedding.from_budget(allowed.without(num_frequent * row), **sizes)
        except ValueError:  # the rest is too small for a network, so the network gets everything
            num_frequent, tail = 0, whole()
        network = {**network_arguments(tail), **options}  # side features as they were given, with their rows
        scheme = cls(embedding_dim, num_frequent=num_frequent, network=network, row_bits=row_bits, seed=seed)
        if frequencies is not None:
            scheme.head.assign_by(frequencies, vocab_size=vocab_size)
        return scheme


def _bytes_of_row(embedding_dim: int, bits: int) -> int:
    """With the id, and the scale that integers have."""
    return 8 + bytes_for(embedding_dim, bits) + (2 if bits <= 8 else 0)


class _Exported(nn.Module):
    def __init__(self, head: FrequentRows, tail: nn.Module) -> None:
        super().__init__()
        self.head = head
        self.tail = tail

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [n] -> float32 [n, embedding_dim]."""
        return _both(ids, self.head, self.tail)


def _both(ids: Tensor, head: FrequentRows, tail: nn.Module) -> Tensor:
    """Head and tail for every id, and the right one of the two: shapes that do not depend on the data."""
    rows, is_frequent = head(ids)
    return torch.where(is_frequent.unsqueeze(-1), rows, tail(ids))
