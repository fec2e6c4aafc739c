"""The vectors of ids that coded rows do not have: one for all of them, or those of a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..budget import Allowance
from ..deep_hash import DeepHashEmbedding, network_arguments
from ..scheme import Precision


class UnknownIds(nn.Module):
    """Fills in vectors for ids that fail a check: `mean`, or what `tail`, a deep hash embedding, computes.

    `network` are the arguments of the deep hash embedding, or None for the mean vector.
    """

    def __init__(self, embedding_dim: int, network: Mapping[str, Any] | None, **shared: Any) -> None:
        super().__init__()
        self.tail = None if network is None else DeepHashEmbedding(embedding_dim, **network, **shared)
        self.mean = nn.Parameter(torch.zeros(embedding_dim)) if self.tail is None else None

    @property
    def network(self) -> dict[str, Any] | None:
        """The arguments as plain values: of side features only their kind."""
        return None if self.tail is None else network_arguments(self.tail)

    def forward(self, ids: Tensor, vectors: Tensor, is_known: Tensor) -> Tensor:
        """Vectors [n, embedding_dim], with others where ids [n] are not known [n]."""
        if self.mean is not None:
            return torch.where(is_known.unsqueeze(-1), vectors, self.mean)
        assert self.tail is not None
        return _filled_in(self.tail, ids, vectors, is_known)

    def served(
        self, precision: Precision, sample_ids: Tensor
    ) -> tuple[Callable[[Tensor, Tensor, Tensor], Tensor], Precision]:
        """What `forward` does, in the form that answers requests, and what is really computed."""
        if self.tail is None:
            return self, "fp32"
        tail = self.tail.served(precision, sample_ids)
        return lambda ids, vectors, is_known: _filled_in(tail.vectors, ids, vectors, is_known), tail.precision

    def exported(self) -> nn.Module:
        """The same with the network as it is exported."""
        return self if self.tail is None else _Exported(self.tail.exported())

    @classmethod
    def arguments_for(
        cls, share: float, allowed: Allowance, options: Mapping[str, Any], **sizes: Any
    ) -> dict[str, Any] | None:
        """The arguments of a network for a share of a budget; None if the share is 0."""
        if not 0 <= share < 1 or (options and not share):
            raise ValueError(
                f"network_share is {share}; it must be at least 0 and less than 1, and above 0 if there are options "
                f"for the network, here {list(options)}"
            )
        if not share:
            return None
        own = Allowance(int(share * allowed.amount), allowed.unit)
        with torch.device("meta"):
            network = DeepHashEmbedding.from_budget(own, **sizes, **options)
        return {**network_arguments(network), **options}  # side features as they were given, with their rows


class _Exported(nn.Module):
    def __init__(self, tail: nn.Module) -> None:
        super().__init__()
        self.tail = tail

    def forward(self, ids: Tensor, vectors: Tensor, is_known: Tensor) -> Tensor:
        """As above."""
        return _filled_in(self.tail, ids, vectors, is_known)


def _filled_in(network: Callable[[Tensor], Tensor], ids: Tensor, vectors: Tensor, is_known: Tensor) -> Tensor:
    if torch.compiler.is_compiling():  # shapes must not depend on the data, so the network computes for every id
        return torch.where(is_known.unsqueeze(-1), vectors, network(ids).to(vectors))
    rest = (~is_known).nonzero().squeeze(-1)
    return vectors.index_copy(0, rest, network(ids[rest]).to(vectors)) if len(rest) else vectors
