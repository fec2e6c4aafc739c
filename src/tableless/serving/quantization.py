"""Weights as 8-bit integers, rounded so that errors cancel in what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .folding import FoldedLayer

Floats = NDArray[np.float32]
Constants = tuple[Floats, Floats, Floats]

_DAMPING = 1e-3  # of the mean input, added to each: keeps the inverse finite where an input never varies


@dataclass(frozen=True)
class Int8Layer:
    """rows @ weight + bias, for rows given as row_scale · channel · (byte + 128) + floor.

    `channel` gives each input a scale of its own, so that a loud one does not drown the others; it is part of the
    weights. What the constants 128 and `floor` come to is the same for all rows: `carry` and `bias`.
    """

    weight: Tensor  # int8 [inputs, outputs]
    scale: Tensor  # float32 [outputs]
    carry: Tensor  # float32 [outputs]
    bias: Tensor  # float32 [outputs]
    floor: float
    inverse_channel: Tensor  # float32 [inputs]

    @classmethod
    def of(cls, layer: FoldedLayer, sample: Tensor) -> Int8Layer:
        """For inputs that vary as a sample [n, inputs] of them does."""
        floor = float(sample.min())
        channel = (sample - floor).amax(0).clamp(min=1e-6).sqrt()  # half the way to equal ranges: weights suffer too
        integers, scale = round_weights(layer.weight * channel.unsqueeze(-1), (sample - floor) / channel)
        return cls(
            weight=integers,
            scale=scale,
            carry=128 * integers.sum(0, dtype=torch.float32),
            bias=layer.bias + floor * layer.weight.sum(0),
            floor=floor,
            inverse_channel=1 / channel,
        )

    @classmethod
    def of_codes(cls, layer: FoldedLayer, sample: Tensor) -> Int8Layer:
        """For uniform codes, which are row_scale · byte with 1/127 for every row."""
        integers, scale = round_weights(layer.weight, sample)
        nothing = torch.zeros_like(scale)
        return cls(integers, scale, nothing, layer.bias, 0.0, torch.ones(len(layer.weight)))

    @cached_property
    def constants(self) -> Constants:
        """For compiled loops: what sums are multiplied by, what is added before a row's scale, and what after it."""
        return self.scale.numpy(), (self.scale * self.carry).numpy(), self.bias.numpy()

    @cached_property
    def inverse_channel_array(self) -> Floats:
        """The same for the inputs' scales."""
        return self.inverse_channel.numpy()

    def quantize(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Float32 [n, inputs] -> int8 [n, inputs] and the scale of each row, [n]."""
        steps = ((rows - self.floor) * self.inverse_channel).clamp_(min=0)
        scale = steps.amax(-1).clamp_(min=1e-12) / 255
        return (steps / scale.unsqueeze(-1)).round_().sub_(128).to(torch.int8), scale


def round_weights(weight: Tensor, sample: Tensor) -> tuple[Tensor, Tensor]:
    """[inputs, outputs] and a sample of the inputs -> int8 weights and the scale of each output.

    Inputs are rounded one after the other, and what rounding one of them does to the outputs is made up for by those
    still to come, as far as the sample says that they vary together (optimal brain quantisation, as in GPTQ).
    """
    scale = weight.abs().amax(0).clamp(min=1e-12) / 127
    covariance = (sample.double().T @ sample.double()) / len(sample)
    covariance.diagonal().add_(_DAMPING * covariance.diagonal().mean() + 1e-12)
    spread = torch.linalg.cholesky(torch.linalg.inv(covariance), upper=True).float()
    left, integers = weight.clone(), torch.empty(weight.shape, dtype=torch.int8)
    for number in range(len(weight)):
        rounded = (left[number] / scale).round().clamp(-127, 127)
        integers[number] = rounded.to(torch.int8)
        error = (left[number] - rounded * scale) / spread[number, number]
        left[number + 1 :] -= spread[number, number + 1 :].unsqueeze(-1) * error
    return integers, scale
