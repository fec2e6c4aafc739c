"""A trained network as plain matrices: batch norm is folded into the weights, and every expert is a network of its own.

This is the form that answers requests, and (as modules) the form that is exported. Weights that are packed stay so, in
the memory of the scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ..decoders import Architecture, EmbeddingNetwork, through_hidden_layers
from ..encoders import Encoder
from ..hashing import HashFamily
from ..layers import ACTIVATIONS, Activation, BatchNorm
from ..rounded_matrix import RoundedLinear, RoundedMatrix
from .packed_layer import PackedLayer, PackedLinear

_VECTOR = 16  # float32 numbers in the widest vector of a CPU


@dataclass(frozen=True)
class FoldedLayer:
    """rows @ weight + bias."""

    weight: Tensor  # [inputs, outputs]
    bias: Tensor  # [outputs]

    @property
    def width(self) -> int:
        """Outputs."""
        return len(self.bias)

    @cached_property
    def bias_array(self) -> NDArray[np.float32]:
        """The bias for compiled loops."""
        return self.bias.numpy()

    @property
    def num_floats(self) -> int:
        """How many numbers have to be made of stored ones before a product."""
        return 0

    def floats(self, memory: Callable[[int, int], Tensor]) -> Tensor:
        """The weight, which needs no memory of others."""
        return self.weight


Layer = FoldedLayer | PackedLayer


@dataclass(frozen=True)
class FoldedNetwork:
    """One network, or one expert of several: hidden layers, each followed by the activation, and the output layer."""

    hidden: tuple[Layer, ...]
    output: Layer
    architecture: Architecture
    activation: Activation

    def through_hidden(
        self,
        rows: Tensor,
        layer: Callable[[int, Tensor], Tensor],
        *,
        add: Callable[[Tensor, Tensor], Tensor] = torch.add,
    ) -> Tensor:
        """Codes -> what the output layer is fed; `layer(number, rows)` computes a hidden layer."""
        return through_hidden_layers(rows, len(self.hidden), self.architecture, layer, add=add)

    def inputs_of_hidden(self, codes: Tensor) -> list[Tensor]:
        """What each hidden layer is fed."""
        inputs: list[Tensor] = []

        def layer(number: int, rows: Tensor) -> Tensor:
            inputs.append(rows)
            own = self.hidden[number]
            return ACTIVATIONS[self.activation](torch.addmm(own.bias, rows, own.weight))

        self.through_hidden(codes, layer)
        return inputs


@torch.no_grad()
def fold(network: EmbeddingNetwork, *, padded: bool = True) -> list[FoldedNetwork]:
    """The network in evaluation mode, an entry per expert. Weights are copies: later training does not reach them.

    Packed weights can't be trained, so there is no need for a copy.
    """
    hidden = [_with_norm(layer.linear, layer.norm) for layer in network.hidden]  # type: ignore[arg-type]
    output = _with_norm(network.output, nn.Identity())
    if padded and network.architecture != "densenet":
        hidden, output = _padded(hidden, output)
    return [
        FoldedNetwork(
            tuple(layer[expert] for layer in hidden), output[expert], network.architecture, network.activation
        )
        for expert in range(network.num_experts)
    ]


class ExpertsApart(nn.Module):
    """Ids to vectors by an encoder, a router and a plain network for each expert: what is exported.

    In the library one batched product serves all experts. A program whose shapes may not depend on the data would have
    to send every id through every expert. Here each expert gets its own ids, so that an id costs one expert's work.
    """

    def __init__(self, encoder: Encoder, network: EmbeddingNetwork, router: HashFamily | None) -> None:
        super().__init__()
        self.embedding_dim = network.embedding_dim
        self.encoder = encoder
        self.router = router
        is_packed = any(isinstance(part, RoundedMatrix) and part.packed for part in network.modules())
        self.experts = nn.ModuleList(_PlainNetwork(expert) for expert in fold(network, padded=not is_packed))

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [n] -> float32 [n, embedding_dim]."""
        codes = self.encoder(ids).float()  # as the folded weights are
        if self.router is None:
            return self.experts[0](codes)
        chosen = self.router(ids)[..., 0]
        places = [(chosen == expert).nonzero().squeeze(-1) for expert in range(len(self.experts))]
        vectors = torch.cat([expert(codes[own]) for expert, own in zip(self.experts, places, strict=True)])
        return codes.new_zeros(ids.shape[0], self.embedding_dim).index_put((torch.cat(places),), vectors)


class _PlainNetwork(nn.Module):
    """Linear layers and activations, nothing else."""

    def __init__(self, network: FoldedNetwork) -> None:
        super().__init__()
        self.activation = network.activation
        self.architecture = network.architecture
        self.hidden = nn.ModuleList(_linear(layer) for layer in network.hidden)
        self.output = _linear(network.output)

    def forward(self, codes: Tensor) -> Tensor:
        """[n, code_dim] -> [n, embedding_dim]."""
        activate = ACTIVATIONS[self.activation]
        rows = through_hidden_layers(
            codes, len(self.hidden), self.architecture, lambda number, x: activate(self.hidden[number](x))
        )
        return self.output(rows)


def _linear(layer: Layer) -> nn.Linear | PackedLinear:
    if isinstance(layer, PackedLayer):
        return PackedLinear.of(layer)
    inputs, outputs = layer.weight.shape
    linear = nn.Linear(inputs, outputs, device="meta")
    linear.weight = nn.Parameter(layer.weight.T.contiguous(), requires_grad=False)
    linear.bias = nn.Parameter(layer.bias, requires_grad=False)
    return linear


def _with_norm(linear: nn.Module, norm: nn.Module) -> list[Layer]:
    """A linear layer (of each expert) that does what the batch norm behind it would do as well."""
    bias = linear.get_parameter("bias").double()
    scale = torch.ones_like(bias)
    if isinstance(norm, BatchNorm):
        scale = norm.weight / torch.sqrt(norm.running_var.double() + norm.eps)
        bias = (bias - norm.running_mean) * scale + norm.bias
    scale, bias = scale.view(-1, scale.shape[-1]), bias.view(-1, bias.shape[-1])  # [num_experts, outputs]
    if isinstance(linear, RoundedLinear) and linear.weight.packed:
        return _packed_layers(linear.weight, scale, bias.float())
    weight = linear.weight() if isinstance(linear, RoundedLinear) else linear.get_parameter("weight")
    weight = weight.double().view(len(bias), *weight.shape[-2:]) * scale.unsqueeze(-1)
    experts = zip(weight, bias, strict=True)
    return [FoldedLayer(own_weight.T.float().contiguous(), own_bias.float()) for own_weight, own_bias in experts]


def _packed_layers(weight: RoundedMatrix, scale: Tensor, bias: Tensor) -> list[Layer]:
    """The layer of each expert, whose norm multiplies the scales of the weights."""
    numbers = weight.numbers if weight.bits == 16 else weight.integers
    if weight.bits < 16:
        scale = scale * weight.scale.view(scale.shape).double()
    experts = zip(numbers.view(len(bias), *numbers.shape[-2:]), scale.float(), bias, strict=True)
    inputs = weight.shape[-1]
    return [PackedLayer(own, weight.bits, inputs, factor, shift, inputs) for own, factor, shift in experts]


def _padded(hidden: list[list[Layer]], output: list[Layer]) -> tuple[list[list[Layer]], list[Layer]]:
    """The same network with hidden layers as wide as whole vectors of the CPU.

    Units beyond the last whole vector would be computed one by one. The units that are added have zero weights and a
    zero bias, and the next layer gives them zero weights, so that they change nothing.
    """
    result, extra_inputs = [], 0
    for experts in hidden:
        extra = -experts[0].width % _VECTOR
        result.append([_pad(layer, extra_inputs, extra) for layer in experts])
        extra_inputs = extra
    return result, [_pad(layer, extra_inputs, 0) for layer in output]


def _pad(layer: Layer, inputs: int, outputs: int) -> Layer:
    if isinstance(layer, PackedLayer):
        return replace(layer, bias=F.pad(layer.bias, (0, outputs)), padded_inputs=layer.padded_inputs + inputs)
    return FoldedLayer(F.pad(layer.weight, (0, outputs, 0, inputs)).contiguous(), F.pad(layer.bias, (0, outputs)))
