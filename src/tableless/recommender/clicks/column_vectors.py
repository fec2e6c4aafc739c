"""From the values of a column to vectors: by a scheme, by a bag for lists, by a linear map or by buckets for numbers.

A scheme that is open to any id is asked for the ids themselves. A closed one has rows; row 0 is that of all values that
training did not know.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...data.clicks.columns import MISSING
from ...embedding.hashing import mix_ids
from ...embedding.id_rows import IdRows
from ...embedding.scheme import INITIAL_STD, EmbeddingScheme, normal, seeded
from ...files.scheme_directory import build_scheme, describe_scheme

_CHECK = 0x2545F4914F6CDD1D  # gives check bits that have nothing to do with the rows
_CHECK_BITS = 8


class ColumnVectors(nn.Module, ABC):
    """The vectors of one column."""

    @abstractmethod
    def forward(self, values: Tensor) -> Tensor:
        """Values [batch] (lists: [batch, length]) -> float [batch, dim]."""

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Plain values that build it again (`build_column`)."""

    def bytes_by_part(self) -> dict[str, int]:
        """The bytes that must be stored to answer for raw values, by part."""
        return {"numbers": sum(tensor.numel() * tensor.element_size() for tensor in self.state_dict().values())}

    @property
    def num_bytes(self) -> int:
        """All bytes that must be stored to answer for raw values."""
        return sum(self.bytes_by_part().values())


class KnownValues(nn.Module):
    """Which row an id has: 1, 2, … for known ids and 0 for others. The ids themselves are not stored.

    It takes 2.6 bits for each id, and 8 more by which other ids are noticed, all but one in 256 of them.
    """

    checks: Tensor

    def __init__(self, num_values: int) -> None:
        super().__init__()
        self.num_values = num_values
        self.rows = IdRows(max(1, num_values))
        self.register_buffer("checks", torch.zeros(max(1, num_values), dtype=torch.uint8))

    def build(self, ids: Tensor) -> Tensor:
        """Put the known ids in, and return the row of each."""
        rows = self.rows.build(ids)
        self.checks[rows] = _check_of(ids)
        return rows + 1

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> rows, int64 [...]."""
        rows = self.rows(ids)
        return torch.where(self.checks[rows] == _check_of(ids), rows + 1, 0).clamp(max=self.num_values)

    @property
    def num_bytes(self) -> int:
        """Of the map and the checks."""
        return self.rows.num_bytes + self.checks.numel()


def _check_of(ids: Tensor) -> Tensor:
    return (mix_ids(ids ^ _CHECK) & ((1 << _CHECK_BITS) - 1)).to(torch.uint8)


class ValueVectors(ColumnVectors):
    """Vectors of ids, by any scheme. A list has the mean of its ids' vectors, and an empty one zeros."""

    def __init__(self, scheme: EmbeddingScheme, *, num_values: int, is_list: bool) -> None:
        super().__init__()
        self.scheme = scheme
        self.num_values = num_values  # that training knew
        self.is_list = is_list
        self.known = None if scheme.open_vocabulary else KnownValues(num_values)

    def forward(self, values: Tensor) -> Tensor:
        """Int64 [batch] or [batch, length] -> float [batch, dim]."""
        vectors = self.scheme(self.asked_for(values))
        return mean_of_lists(vectors, values) if self.is_list else vectors

    def asked_for(self, ids: Tensor) -> Tensor:
        """What the scheme is asked for: ids, or their rows."""
        return ids if self.known is None else self.known(ids)

    def bytes_by_part(self) -> dict[str, int]:
        """Those of the scheme. Checks, which tell new values from known ones, count as well."""
        own = self.scheme.bytes_by_part()
        return own if self.known is None else own | {"checks": self.known.checks.numel()}

    @property
    def config(self) -> dict[str, Any]:
        """The scheme and what is asked of it."""
        return {"by": "scheme", "scheme": describe_scheme(self.scheme), "num_values": self.num_values,
                "is_list": self.is_list}  # fmt: skip


class NumberVectors(ColumnVectors):
    """A number x has the vector z·a + b, where z is x without the mean and scale of training.

    A missing number has a vector of its own.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, dim: int, *, mean: float = 0.0, std: float = 1.0, seed: int = 0) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32))
        generator = seeded(seed)
        self.slope, self.offset, self.missing = (
            normal(dim, std=10 * INITIAL_STD, generator=generator) for _ in range(3)
        )

    def forward(self, values: Tensor) -> Tensor:
        """Float [batch] -> [batch, dim]."""
        is_missing = values.isnan()
        z = torch.where(is_missing, 0.0, (values - self.mean) / self.std).clamp(-10, 10).unsqueeze(-1)
        return torch.where(is_missing.unsqueeze(-1), self.missing, z * self.slope + self.offset)

    @property
    def config(self) -> dict[str, Any]:
        """Mean and scale are among the weights."""
        return {"by": "number", "dim": self.dim}


class BucketVectors(ColumnVectors):
    """A number has the vector of the bucket that it falls into; row 0 is for missing ones."""

    edges: Tensor

    def __init__(self, dim: int, *, num_edges: int, seed: int = 0) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("edges", torch.zeros(num_edges))
        self.table = normal(num_edges + 2, dim, std=INITIAL_STD, generator=seeded(seed))

    def forward(self, values: Tensor) -> Tensor:
        """Float [batch] -> [batch, dim]."""
        below = (values.unsqueeze(-1) >= self.edges).to(torch.float32).sum(-1).long()  # NaN is above no edge
        return nn.functional.embedding(torch.where(values.isnan(), 0, below + 1), self.table)

    @property
    def config(self) -> dict[str, Any]:
        """The edges are among the weights."""
        return {"by": "buckets", "dim": self.dim, "num_edges": len(self.edges)}


def mean_of_lists(vectors: Tensor, ids: Tensor) -> Tensor:
    """Vectors [batch, length, dim] of ids [batch, length] -> [batch, dim]; `MISSING` ids do not count."""
    is_there = (ids != MISSING).to(vectors.dtype).unsqueeze(-1)
    return (vectors * is_there).sum(-2) / is_there.sum(-2).clamp_min(1)


def build_column(config: Mapping[str, Any]) -> ColumnVectors:
    """The column that was described, with its starting weights."""
    own = {name: value for name, value in config.items() if name != "by"}
    if config["by"] == "number":
        return NumberVectors(**own)
    if config["by"] == "buckets":
        return BucketVectors(**own)
    return ValueVectors(build_scheme(own.pop("scheme")), **own)
