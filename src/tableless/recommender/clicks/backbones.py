"""The backbones of click models: what is made of the columns' vectors, float [batch, columns, dim] -> logits [batch].

A column has one vector and no further weight for each value. Where a model of the literature adds such a weight, it is
a linear map of the vector here. So all that is stored for a value is in its scheme, and the budget is the whole truth.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise

import torch
from torch import Tensor, nn

from ...embedding.scheme import normal, seeded
from ...hints import require_known_name

HIDDEN = (128, 64)
"""Units of the hidden layers of a deep part."""
NUM_CROSSES = 2


class ClickBackbone(nn.Module, ABC):
    """Turns the vectors of a row's columns into a logit."""

    def __init__(self, num_columns: int, dim: int, *, is_number: list[bool], seed: int = 0) -> None:
        super().__init__()
        self.num_columns, self.dim, self.is_number, self.seed = num_columns, dim, is_number, seed
        self.bias = nn.Parameter(torch.zeros(()))

    @abstractmethod
    def forward(self, vectors: Tensor) -> Tensor:
        """Float [batch, columns, dim] -> [batch]."""

    @property
    def num_parameters(self) -> int:
        """Weights besides those of the columns."""
        return sum(parameter.numel() for parameter in self.parameters())


class FM(ClickBackbone):
    """Factorisation machine (Rendle, 2010): inner products of all pairs of columns, and a linear part."""

    def __init__(self, num_columns: int, dim: int, *, is_number: list[bool], seed: int = 0) -> None:
        super().__init__(num_columns, dim, is_number=is_number, seed=seed)
        self.linear = normal(num_columns, dim, std=dim**-0.5, generator=seeded(seed))

    def forward(self, vectors: Tensor) -> Tensor:
        """All pairs at once: half of the square of the sum, without the sum of the squares."""
        pairs = vectors.sum(-2).square().sum(-1) - vectors.square().sum((-1, -2))
        return self.bias + (vectors * self.linear).sum((-1, -2)) + pairs / 2


class DeepFM(ClickBackbone):
    """An FM and a network over the same vectors, added up (Guo et al., 2017)."""

    def __init__(self, num_columns: int, dim: int, *, is_number: list[bool], seed: int = 0) -> None:
        super().__init__(num_columns, dim, is_number=is_number, seed=seed)
        self.fm = FM(num_columns, dim, is_number=is_number, seed=seed)
        self.deep = _network([num_columns * dim, *HIDDEN, 1], seed=seed + 1)

    def forward(self, vectors: Tensor) -> Tensor:
        """Both logits together."""
        return self.bias + self.fm(vectors) + self.deep(vectors.flatten(-2)).squeeze(-1)


class DCN(ClickBackbone):
    """Deep and cross network, version 2 (Wang et al., 2021): crosses with full matrices beside a network."""

    def __init__(self, num_columns: int, dim: int, *, is_number: list[bool], seed: int = 0) -> None:
        super().__init__(num_columns, dim, is_number=is_number, seed=seed)
        width, generator = num_columns * dim, seeded(seed)
        self.crosses = nn.ModuleList(_linear(width, width, generator, gain=1) for _ in range(NUM_CROSSES))
        self.deep = _network([width, *HIDDEN], seed=seed + 1, ends_in_relu=True)
        self.output = _linear(width + HIDDEN[-1], 1, generator, gain=1)

    def forward(self, vectors: Tensor) -> Tensor:
        """Each cross is x0 ⊙ (W·x + b) + x."""
        first = vectors.flatten(-2)  # [batch, columns · dim]
        crossed = first
        for cross in self.crosses:
            crossed = first * cross(crossed) + crossed
        both = torch.cat([crossed, self.deep(first)], dim=-1)
        return self.bias + self.output(both).squeeze(-1)


class DLRM(ClickBackbone):
    """Deep learning recommendation model (Naumov et al., 2019): a network over the inner products of all pairs.

    The numbers go through a network of their own first, and become one vector. Without numbers it is a learned one: its
    products with the others say how much each value matters by itself.
    """

    def __init__(self, num_columns: int, dim: int, *, is_number: list[bool], seed: int = 0) -> None:
        super().__init__(num_columns, dim, is_number=is_number, seed=seed)
        dense = [place for place, own in enumerate(is_number) if own]
        self.dense_places = dense
        self.other_places = [place for place in range(num_columns) if place not in dense]
        self.bottom = _network([len(dense) * dim, HIDDEN[-1], dim], seed=seed + 2) if dense else None
        self.constant = None if dense else normal(dim, std=dim**-0.5, generator=seeded(seed))
        count = len(self.other_places) + 1
        rows, columns = torch.tril_indices(count, count, -1)
        self.register_buffer("pair_places", rows * count + columns, persistent=False)
        self.top = _network([dim + len(rows), *HIDDEN, 1], seed=seed + 1)

    pair_places: Tensor

    def forward(self, vectors: Tensor) -> Tensor:
        """The vector of the numbers, and all products, through the top network."""
        if self.bottom is not None:
            dense = self.bottom(vectors[..., self.dense_places, :].flatten(-2))
        else:
            assert self.constant is not None
            dense = self.constant.expand(vectors.shape[0], -1)
        all_vectors = torch.cat([dense.unsqueeze(-2), vectors[..., self.other_places, :]], dim=-2)
        products = (all_vectors @ all_vectors.mT).flatten(-2)[..., self.pair_places]
        return self.bias + self.top(torch.cat([dense, products], dim=-1)).squeeze(-1)


CLICK_BACKBONES: dict[str, type[ClickBackbone]] = {"fm": FM, "deepfm": DeepFM, "dcn": DCN, "dlrm": DLRM}
"""Every backbone of a click model by its name."""


def find_click_backbone(name: str) -> type[ClickBackbone]:
    """The backbone of this name."""
    require_known_name("backbone of a click model", name, CLICK_BACKBONES)
    return CLICK_BACKBONES[name]


def _network(sizes: list[int], *, seed: int, ends_in_relu: bool = False) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    generator, layers = seeded(seed), list[nn.Module]()
    for before, after in pairwise(sizes):
        layers += [_linear(before, after, generator, gain=2), nn.ReLU()]
    return nn.Sequential(*(layers if ends_in_relu else layers[:-1]))


def _linear(inputs: int, outputs: int, generator: torch.Generator, *, gain: float) -> nn.Linear:
    """A layer that keeps the scale of its inputs (gain 1), or of what a ReLU leaves of them (gain 2)."""
    linear = nn.Linear(inputs, outputs, device="meta")
    linear.weight = normal(outputs, inputs, std=(gain / inputs) ** 0.5, generator=generator)
    linear.bias = nn.Parameter(torch.zeros(outputs))
    return linear
