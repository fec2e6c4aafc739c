"""A trained network as plain matrices: batch norm is folded into the weights, and every expert is a network of its own.

This is the form that answers requests, and (as modules) the form that is exported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class FoldedNetwork:
    """One network, or one expert of several: hidden layers, each followed by the activation, and the output layer."""

    hidden: tuple[FoldedLayer, ...]
    output: FoldedLayer
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
def fold(network: EmbeddingNetwork) -> list[FoldedNetwork]:
    """The network in evaluation mode, an entry per expert. Weights are copies: later training does not reach them."""
    hidden = [_with_norm(layer.linear, layer.norm) for layer in network.hidden]  # type: ignore[arg-type]
    output = _with_norm(network.output, nn.Identity())
    if network.architecture != "densenet":
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
        self.experts = nn.ModuleList(_PlainNetwork(expert) for expert in fold(network))

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


def _linear(layer: FoldedLayer) -> nn.Linear:
    inputs, outputs = layer.weight.shape
    linear = nn.Linear(inputs, outputs, device="meta")
    linear.weight = nn.Parameter(layer.weight.T.contiguous(), requires_grad=False)
    linear.bias = nn.Parameter(layer.bias, requires_grad=False)
    return linear


def _with_norm(linear: nn.Module, norm: nn.Module) -> list[FoldedLayer]:
    """A linear layer (of each expert) that does what the batch norm behind it would do as well."""
    weight, bias = linear.get_parameter("weight").double(), linear.get_parameter("bias").double()
    if isinstance(norm, BatchNorm):
        scale = norm.weight / torch.sqrt(norm.running_var.double() + norm.eps)
        weight, bias = weight * scale.unsqueeze(-1), (bias - norm.running_mean) * scale + norm.bias
    experts = zip(weight.view(-1, *weight.shape[-2:]), bias.view(-1, bias.shape[-1]), strict=True)
    return [FoldedLayer(own_weight.T.float().contiguous(), own_bias.float()) for own_weight, own_bias in experts]


def _padded(
    hidden: list[list[FoldedLayer]], output: list[FoldedLayer]
) -> tuple[list[list[FoldedLayer]], list[FoldedLayer]]:
    """The same network with hidden layers as wide as whole vectors of the CPU.

    Units beyond the last whole vector would be computed one by one. The units that are added have zero weights and a
    zero bias, and the next layer gives them zero weights, so that they change nothing.
    """
    result, extra_inputs = [], 0
    for experts in hidden:
        extra = -experts[0].weight.shape[1] % _VECTOR
        result.append([_pad(layer, extra_inputs, extra) for layer in experts])
        extra_inputs = extra
    return result, [_pad(layer, extra_inputs, 0) for layer in output]


def _pad(layer: FoldedLayer, inputs: int, outputs: int) -> FoldedLayer:
    return FoldedLayer(F.pad(layer.weight, (0, outputs, 0, inputs)).contiguous(), F.pad(layer.bias, (0, outputs)))
