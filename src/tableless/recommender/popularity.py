"""How often items were chosen of late, counted in bounded memory, and what that adds to their scores."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..embedding.hashing import HashFamily, derive_seed
from ..embedding.id_batches import checked_ids
from ..embedding.scheme import normal, seeded
from ..kernels import uses_kernels

_UNITS = 16  # of the hidden layer
_LARGEST_WEIGHT = 2.0**20  # when an action weighs so much, all counts are made smaller


class DecayedCounts(nn.Module):
    """Counts that halve with every `half_life` further actions, in a count–min sketch of fixed size.

    Time is counted in actions, so that late or unordered clocks do no harm. Each id has four counts: their half-lives
    are a tenth of `half_life`, itself, thirty times as much, and for ever. An id that shares its cells with others is
    counted too high, and never too low. (The count that is kept for ever stops at 2^24, as float32 does.)
    """

    cells: Tensor
    weights: Tensor
    num_counts = 4

    def __init__(self, *, width: int, depth: int = 3, half_life: int = 10_000, seed: int = 0) -> None:
        super().__init__()
        if half_life < 1:
            raise ValueError(f"half_life is {half_life}; it is a number of actions, and must be at least 1")
        self.width = width
        self.depth = depth
        self.half_life = half_life
        self.seed = seed
        self.hashes = HashFamily(depth, width, derive_seed(seed, "counts"), mixed=True)
        self.register_buffer("cells", torch.zeros(self.num_counts, depth, width))
        # Old counts are not halved: new actions weigh more and more. So nothing has to be touched as time goes by.
        self.register_buffer("weights", torch.ones(self.num_counts, dtype=torch.float64))

    @property
    def half_lives(self) -> list[float]:
        """Of the four counts, in actions."""
        return [max(1.0, self.half_life / 10), self.half_life, 30.0 * self.half_life, math.inf]

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., 4], the counts as they are now."""
        return self.weighted(ids) / self.weights.float()

    def weighted(self, ids: Tensor) -> Tensor:
        """The counts in the unit of the cells, in which one that does not rise stays the same: [..., 4]."""
        buckets = self.hashes(checked_ids(ids))  # [..., depth]
        if uses_kernels(self.cells) and not torch.compiler.is_compiling() and self.cells.dtype == torch.float32:
            from ..kernels import stream_loops as loops

            out = torch.empty(*ids.shape, self.num_counts)
            flat = buckets.view(-1, self.depth).numpy()
            loops.read_counts(flat, self.cells.numpy(), out.view(-1, self.num_counts).numpy())
            return out
        found = [self.cells[:, row, buckets[..., row]] for row in range(self.depth)]  # [4, ...] each
        return torch.stack(found).amin(0).movedim(0, -1)

    def add(self, ids: Tensor) -> Tensor:
        """Count one action for each of the ids [n]; then time goes on by n actions.

        Returns what weighted counts were divided by [4], which is 1 nearly always.
        """
        from ..kernels import stream_loops as loops

        loops.count(self.hashes(ids).numpy(), self.weights.numpy(), self.cells.numpy())
        grown = [2.0 ** (len(ids) / half_life) for half_life in self.half_lives]
        self.weights *= torch.tensor(grown, dtype=torch.float64)
        large = self.weights > _LARGEST_WEIGHT
        divisors = torch.where(large, self.weights, 1.0)
        if large.any():
            self.cells /= divisors.float().view(-1, 1, 1)
            self.weights /= divisors
        return divisors

    @property
    def config(self) -> dict[str, Any]:
        """Plain values that build it again, without what was counted."""
        return {"width": self.width, "depth": self.depth, "half_life": self.half_life, "seed": self.seed}


class PopularityBias(nn.Module):
    """What an item's counts add to its score: a small network over their logarithms.

    It starts as the logarithm of the count of one `half_life`. So a model that has learned nothing ranks by popularity.

    Args:
        width: Cells in a row of the sketch.
        depth: Rows of the sketch, each with a hash function of its own.
        half_life: After so many actions a count is worth half.
        seed: Hash functions and weights follow from it.

    Raises:
        ValueError: `half_life` is below 1.

    Example:
        ```python
        import torch
        from tableless.recommender.popularity import PopularityBias

        popularity = PopularityBias(width=1024, half_life=1_000)
        popularity.counts.add(torch.tensor([7, 7, 8]))
        print(popularity(torch.tensor([7, 8, 9])))  # the highest first
        ```
    """

    def __init__(self, *, width: int, depth: int = 3, half_life: int = 10_000, seed: int = 0) -> None:
        super().__init__()
        self.counts = DecayedCounts(width=width, depth=depth, half_life=half_life, seed=seed)
        num_counts, generator = DecayedCounts.num_counts, seeded(derive_seed(seed, "popularity"))
        self.linear = nn.Parameter(torch.tensor([0.0, 1.0, 0.0, 0.0]))
        self.hidden = normal(_UNITS, num_counts, std=1 / math.sqrt(num_counts), generator=generator)
        self.offset = normal(_UNITS, std=1.0, generator=generator)
        self.output = nn.Parameter(torch.zeros(_UNITS))

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [...]."""
        logarithms = torch.log1p(10 * self.counts(ids).to(self.linear))  # a tenth of an action still counts
        hidden = torch.tanh(logarithms @ self.hidden.T + self.offset)
        return logarithms @ self.linear + hidden @ self.output

    @property
    def num_bytes(self) -> int:
        """All that must be stored."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.state_dict().values())

    @property
    def config(self) -> dict[str, Any]:
        """Plain values that build it again, without what was counted and learned."""
        return self.counts.config
