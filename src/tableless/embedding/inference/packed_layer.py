"""A layer whose weights stay in few bits: as it answers requests, and as it is exported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ..rounding import unpack_bits


@dataclass(frozen=True)
class PackedLayer:
    """rows @ weight + bias, with the weights in the memory of the scheme, as they are stored.

    Floats are made of them right before they are multiplied, in memory that the caller uses again and again. There
    they are padded by zeros to `padded_inputs` and to as many outputs as the bias has.
    """

    numbers: Tensor  # [outputs, inputs] int8 or bfloat16, or [outputs, bytes] uint8 with fewer than eight bits
    bits: int
    inputs: int
    scale: Tensor  # float32 [outputs]
    bias: Tensor  # float32 [width]
    padded_inputs: int

    @property
    def width(self) -> int:
        """Outputs, with those that are padding."""
        return len(self.bias)

    @cached_property
    def bias_array(self) -> NDArray[np.float32]:
        """The bias for compiled loops."""
        return self.bias.numpy()

    def integers(self) -> tuple[Tensor, Tensor]:
        """Of 8 bits or fewer: int8 [padded_inputs, width] and the scale of each output, [width]; both are copies."""
        own = unpack_bits(self.numbers, self.bits, self.inputs).T
        extra = self.width - len(self.scale)
        padding = 0, extra, 0, self.padded_inputs - self.inputs
        return F.pad(own, padding).contiguous(), F.pad(self.scale, (0, extra), value=1.0)

    @property
    def num_floats(self) -> int:
        """How many numbers have to be made of stored ones before a product."""
        return self.width * self.padded_inputs

    @property
    def weight(self) -> Tensor:
        """Float32 [padded_inputs, width], made anew."""
        return self.floats(torch.empty)

    def floats(self, memory: Callable[[int, int], Tensor]) -> Tensor:
        """Float32 [padded_inputs, width], in what `memory(rows, columns)` returns."""
        from ...kernels import few_bits as loops

        out = memory(self.width, self.padded_inputs)
        if self.bits == 16:
            out.zero_()[: len(self.numbers), : self.inputs].copy_(self.numbers).mul_(self.scale.unsqueeze(-1))
        elif self.bits == 8:
            loops.floats_of_bytes(self.numbers.numpy(), self.scale.numpy(), out.numpy())
        else:
            loops.floats_of_bits(self.numbers.numpy(), self.bits, self.inputs, self.scale.numpy(), out.numpy())
        return out.T


class PackedLinear(nn.Module):
    """A linear layer that keeps its weights in one byte each (or as bfloat16), and multiplies in float32: for export.

    Activations are not rounded. A network that memorises amplifies such errors (docs/decisions.md). And with ranges
    taken from the batch, an id's vector would depend on the other ids of the batch.
    """

    numbers: Tensor  # int8 or bfloat16 [outputs, inputs]
    scale: Tensor  # float32 [outputs]

    def __init__(self, numbers: Tensor, scale: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.register_buffer("numbers", numbers)
        self.register_buffer("scale", scale)
        self.bias = nn.Parameter(bias, requires_grad=False)

    @classmethod
    def of(cls, layer: PackedLayer) -> PackedLinear:
        """The same layer. Weights of fewer than eight bits get eight, since formats have no operator for them."""
        numbers = layer.numbers if layer.bits == 16 else unpack_bits(layer.numbers, layer.bits, layer.inputs)
        # Copies: what they are parts of has the weights of all experts.
        return cls(numbers.clone(), layer.scale.clone(), layer.bias.clone())

    @property
    def weight(self) -> Tensor:
        """Float32 [outputs, inputs]."""
        if self.numbers.dtype == torch.int8 and torch.onnx.is_in_onnx_export():
            # It has an operator that optimisers do not compute in advance, as they do with a cast.
            return torch.onnx.ops.symbolic(
                "DequantizeLinear",
                (self.numbers, self.scale),
                attrs={"axis": 0},
                dtype=torch.float32,
                shape=self.numbers.shape,
            )
        return self.numbers.to(torch.float32) * self.scale.unsqueeze(-1)

    def forward(self, rows: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        return F.linear(rows, self.weight, self.bias)
