"""A trained network as plain matrices: batch norm folded into the weights, experts apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ..embedding.activations import ACTIVATIONS
from ..embedding.decoders import BatchNorm, EmbeddingNetwork
from ..embedding.deep_hash import DeepHashEmbedding

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

    def inputs_of_layers(self, codes: Tensor, scheme: DeepHashEmbedding) -> list[Tensor]:
        """What comes into each hidden layer, and into the output layer."""
        rows, before = [codes], list[Tensor]()
        for layer in self.hidden:
            after = ACTIVATIONS[scheme.activation](torch.addmm(layer.bias, rows[-1], layer.weight))
            before.append(after + rows[-1] if scheme.architecture == "residual" and before else after)
            rows.append(torch.cat(before, dim=-1) if scheme.architecture == "densenet" else before[-1])
        return rows


@torch.no_grad()
def fold(network: EmbeddingNetwork) -> list[FoldedNetwork]:
    """The network in evaluation mode, an entry per expert. Weights are copies: later training does not reach them."""
    hidden = [_with_norm(layer.linear, layer.norm) for layer in network.hidden]  # type: ignore[arg-type]
    output = _with_norm(network.output, nn.Identity())
    if network.architecture != "densenet":
        hidden, output = _padded(hidden, output)
    return [
        FoldedNetwork(tuple(layer[expert] for layer in hidden), output[expert]) for expert in range(network.num_experts)
    ]


def _padded(
    hidden: list[list[FoldedLayer]], output: list[FoldedLayer]
) -> tuple[list[list[FoldedLayer]], list[FoldedLayer]]:
    """The same with hidden layers as wide as whole vectors of the CPU: what is left over would be done one by one.

    Units that are added have neither weights nor bias, and weigh nothing in the next layer.
    """
    result, extra_inputs = [], 0
    for experts in hidden:
        extra = -experts[0].weight.shape[1] % _VECTOR
        result.append([_pad(layer, extra_inputs, extra) for layer in experts])
        extra_inputs = extra
    return result, [_pad(layer, extra_inputs, 0) for layer in output]


def _pad(layer: FoldedLayer, inputs: int, outputs: int) -> FoldedLayer:
    return FoldedLayer(F.pad(layer.weight, (0, outputs, 0, inputs)).contiguous(), F.pad(layer.bias, (0, outputs)))


def _with_norm(linear: nn.Module, norm: nn.Module) -> list[FoldedLayer]:
    """A linear layer (of each expert) that does what the batch norm behind it would do as well."""
    weight, bias = linear.get_parameter("weight").double(), linear.get_parameter("bias").double()
    if isinstance(norm, BatchNorm):
        scale = norm.weight / torch.sqrt(norm.running_var.double() + norm.eps)
        weight, bias = weight * scale.unsqueeze(-1), (bias - norm.running_mean) * scale + norm.bias
    experts = zip(weight.view(-1, *weight.shape[-2:]), bias.view(-1, bias.shape[-1]), strict=True)
    return [FoldedLayer(own_weight.T.float().contiguous(), own_bias.float()) for own_weight, own_bias in experts]
