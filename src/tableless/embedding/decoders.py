"""Codes → embeddings: the deep, narrow network of section 3.3, the other networks of section 4.7, and experts.

With `num_experts` > 1 every layer holds that many weight matrices. Rows are grouped by expert, and one batched product
serves them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from ..kernels import uses_kernels
from .layers import ACTIVATIONS, Activation, BatchNorm, ExpertLinear, Grouping
from .rounded_matrix import RoundedLinear, RoundedMatrix
from .rounding import require_bits
from .scheme import INITIAL_STD, normal, seeded

Architecture = Literal["equal-width", "pyramid", "inverted-pyramid", "densenet", "residual"]
Normalization = Literal["batch", "none"]


class EmbeddingNetwork(nn.Module):
    """`depth` (h) hidden layers and a linear output layer.

    `width` (d_NN) is that of the widest hidden layer. In a pyramid the widths double from layer to layer, and the last
    is the widest; in an inverted pyramid the first is. In all other architectures every layer has this width. What the
    layers are fed is said by `through_hidden_layers`. The output has no activation and no normalization, because
    embeddings may take any value.
    """

    def __init__(
        self,
        code_dim: int,
        embedding_dim: int,
        *,
        width: int,
        depth: int = 5,
        activation: Activation = "mish",
        normalization: Normalization = "batch",
        architecture: Architecture = "equal-width",
        num_experts: int = 1,
        code_mean_square: float = 1 / 3,
        initial_std: float = INITIAL_STD,
        weight_bits: int = 32,
        packed: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        require_bits("weight_bits", weight_bits)
        _require_choice("architecture", architecture, get_args(Architecture))
        _require_choice("activation", activation, tuple(ACTIVATIONS))
        _require_choice("normalization", normalization, get_args(Normalization))
        for name, value in (("width", width), ("num_experts", num_experts)):
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if depth < 0:
            raise ValueError(f"depth is {depth}; it must be at least 0 (a linear map)")
        self.code_dim = code_dim
        self.embedding_dim = embedding_dim
        self.activation = activation
        self.architecture = architecture
        self.num_experts = num_experts
        linear_layer = partial(
            _linear, num_experts=num_experts, bits=weight_bits, packed=packed, generator=seeded(seed)
        )
        # Weights start at the scale that gives the inputs of every activation variance 1, with batch norm or without.
        # So the start does not depend on the depth. Only the output layer aims at initial_std.
        activated = _mean_square_after(ACTIVATIONS[activation])
        self.hidden = nn.ModuleList()
        inputs, mean_square, all_widths = code_dim, code_mean_square, 0
        for layer_width in _hidden_widths(architecture, width, depth):
            linear = linear_layer(inputs, layer_width, std=1 / math.sqrt(inputs * mean_square))
            norm = BatchNorm(layer_width, num_experts) if normalization == "batch" else nn.Identity()
            self.hidden.append(HiddenLayer(linear, norm, activation))
            all_widths += layer_width
            inputs = all_widths if architecture == "densenet" else layer_width
            grows = architecture == "residual" and len(self.hidden) > 1
            mean_square = mean_square + activated if grows else activated
        self.output = linear_layer(inputs, embedding_dim, std=initial_std / math.sqrt(inputs * mean_square))

    def forward(self, codes: Tensor, experts: Tensor | None = None) -> Tensor:
        """Codes [..., code_dim] -> [..., embedding_dim]. `experts` (int64 [...]) names the expert of each code."""
        # Codes are float32. The weights may have another type, by `.half()`, `.bfloat16()` or `.double()`. A network
        # that torch has quantized has no parameters, and is fed float32.
        dtype = next((parameter.dtype for parameter in self.parameters()), codes.dtype)
        rows = codes.reshape(-1, self.code_dim).to(dtype)
        if self.num_experts == 1:
            embeddings = self._through_layers(rows, None)
        else:
            assert experts is not None, "a network of several experts must be told which one serves each code"
            groups = Grouping(experts.reshape(-1), self.num_experts)
            embeddings = groups.gather(self._through_layers(groups.scatter(rows), groups))
        return embeddings.view(*codes.shape[:-1], self.embedding_dim)

    def _through_layers(self, rows: Tensor, groups: Grouping | None) -> Tensor:
        """[n, code_dim], or [num_experts, capacity, code_dim] in groups."""
        hidden = list(self.hidden)
        rows = through_hidden_layers(rows, len(hidden), self.architecture, lambda number, x: hidden[number](x, groups))
        return self.output(rows)


def through_hidden_layers(
    rows: Tensor,
    depth: int,
    architecture: Architecture,
    layer: Callable[[int, Tensor], Tensor],
    *,
    add: Callable[[Tensor, Tensor], Tensor] = torch.add,
) -> Tensor:
    """Codes -> what the output layer is fed. Every form of the network runs by this function.

    `layer(number, rows)` computes one hidden layer with its activation; it is called for 0 to `depth` - 1 in order. In
    `densenet` a layer is fed all hidden layers before it. In `residual` a layer's input is added to its output (not in
    the first, whose input is the code) by `add(output, input)`, which may work in place.
    """
    before: list[Tensor] = []
    for number in range(depth):
        after = layer(number, rows)
        if architecture == "residual" and before:
            after = add(after, rows)
        before.append(after)
        rows = torch.cat(before, dim=-1) if architecture == "densenet" else after
    return rows


class HiddenLayer(nn.Module):
    """Linear, normalization, activation."""

    def __init__(self, linear: nn.Module, norm: nn.Module, activation: Activation) -> None:
        super().__init__()
        self.linear = linear
        self.norm = norm
        self.activation = activation

    def forward(self, rows: Tensor, groups: Grouping | None) -> Tensor:
        """[n, in] -> [n, out], or the same in groups."""
        rows = self.linear(rows)
        if not isinstance(self.norm, BatchNorm):
            return ACTIVATIONS[self.activation](rows)
        # The loops are for float32. Under autocast the rows are not, though the weights are.
        is_float32 = rows.dtype == self.norm.weight.dtype == torch.float32
        has_kernel = is_float32 and uses_kernels(rows) and not torch.compiler.is_compiling()
        if has_kernel and self.activation == "mish" and groups is None and self.norm.uses_batch(rows):
            return self.norm.forward_and_mish(rows)
        return ACTIVATIONS[self.activation](self.norm(rows, groups))


def _linear(
    inputs: int,
    outputs: int,
    *,
    std: float,
    num_experts: int,
    bits: int,
    packed: bool,
    generator: torch.Generator,
) -> nn.Linear | ExpertLinear | RoundedLinear:
    experts = (num_experts,) if num_experts > 1 else ()
    if bits < 32:
        shape = (*experts, outputs, inputs)
        values = None if packed else normal(*shape, std=std, generator=generator)
        bias = nn.Parameter(torch.zeros(*experts, outputs))
        return RoundedLinear(RoundedMatrix(shape, bits=bits, values=values), bias)
    if experts:
        return ExpertLinear(inputs, outputs, num_experts, std=std, generator=generator)
    linear = nn.Linear(inputs, outputs, device="meta")  # so that its own start does not draw from the global generator
    linear.weight = normal(outputs, inputs, std=std, generator=generator)
    linear.bias = nn.Parameter(torch.zeros(outputs))
    return linear


def _hidden_widths(architecture: Architecture, width: int, depth: int) -> list[int]:
    halved = [max(1, width >> steps) for steps in range(depth)]
    if architecture == "inverted-pyramid":
        return halved
    return halved[::-1] if architecture == "pyramid" else [width] * depth


def _mean_square_after(activation: Callable[[Tensor], Tensor]) -> float:
    """E[activation(z)²] for standard normal z, by summing over a fine grid."""
    z = torch.linspace(-8, 8, 16_001, dtype=torch.float64, device="cpu")
    density = torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return float((activation(z) ** 2 * density).sum() * (z[1] - z[0]))


def _require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")
