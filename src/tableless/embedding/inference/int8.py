"""Weights as 8-bit integers, rounded so that errors cancel in what comes out.

The network in 8-bit integers: a product of bytes, and one compiled pass to the bytes of the next layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..deep_hash import DeepHashEmbedding
from ..layers import ACTIVATIONS
from .network import FloatNetwork, FoldedLayer, FoldedNetwork, Rows

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


_FEWEST_HASHES = 128  # below, the first layer is little of the work, and its rounding would harm all that follow


def is_supported() -> bool:
    """Has this CPU the instructions (VNNI) without which 8-bit products are slower than float32 ones?"""
    return torch.cpu._is_vnni_supported()


class Int8Network(FloatNetwork):
    """Hidden layers in int8. The output layer, which is little of the work, and a small first one stay in float32."""

    def __init__(self, scheme: DeepHashEmbedding, sample_ids: Tensor) -> None:
        super().__init__(scheme)
        self.bytes_from_hashes = self.hashes if scheme.encoder.code_dim >= _FEWEST_HASHES else None
        with torch.inference_mode():
            codes = scheme.encoder(sample_ids)
            self.layers = [self._quantize(network, codes) for network in self.experts]

    @property
    def rounds(self) -> bool:
        """Is any layer computed in bytes? A network with one small hidden layer, or none, has none that is."""
        first = 0 if self._is_simple else 1  # the general path has its first layer in float32, always
        return any(layer is not None for layers in self.layers for layer in layers[first:])

    @property
    def _is_simple(self) -> bool:
        """Does the quick path apply, from bytes to bytes?"""
        return self.scheme.activation == "mish" and self.scheme.architecture not in ("residual", "densenet")

    def compute(self, out: Tensor, ids: Tensor, expert: int) -> None:
        """As in float32; from the second layer on, inputs are bytes."""
        network, layers = self.experts[expert], self.layers[expert]
        if self._is_simple and layers:
            rows = self._through_simple_layers(ids, network, layers)
        else:
            rows = self._through_any_layers(ids, network, layers)
        torch.addmm(network.output.bias, rows, network.output.weight, out=out)

    def _quantize(self, network: FoldedNetwork, codes: Tensor) -> list[Int8Layer | None]:
        """A layer each; None for a first one that stays in float32."""
        if not network.hidden:
            return []
        samples = network.inputs_of_layers(codes, self.scheme)
        first = [Int8Layer.of_codes(network.hidden[0], codes) if self.bytes_from_hashes else None]
        later = zip(network.hidden[1:], samples[1:], strict=False)
        return [*first, *(Int8Layer.of(layer, sample) for layer, sample in later)]

    def _through_simple_layers(self, ids: Tensor, network: FoldedNetwork, layers: list[Int8Layer | None]) -> Tensor:
        from ...kernels import activations as loops

        count = len(ids)
        row_scale = self.buffer("scale", 0, count, 1).array[:, 0]
        inputs = self._codes_as_bytes(ids, row_scale) if layers[0] is not None else torch.empty(0)
        for number, layer in enumerate(layers):
            if layer is None:
                row_scale.fill(1)
                sums, constants = self._first_products(ids, network)
            else:
                sums = self.buffer("sums", 0, count, len(layer.bias), torch.int32)
                torch._int_mm(inputs, layer.weight, out=sums.tensor)
                constants = layer.constants
            following = layers[number + 1] if number + 1 < len(layers) else None
            if following is None:
                after = self.buffer("hidden", 1, count, sums.array.shape[1])
                loops.mish_of_sums(sums.array, row_scale, *constants, after.array)
                return after.tensor
            inputs, array = self.buffer("bytes", 0, count, sums.array.shape[1], torch.int8)
            loops.mish_of_sums_as_bytes(
                sums.array, row_scale, *constants, following.floor, following.inverse_channel_array, array, row_scale
            )
        raise AssertionError("there is a last layer")

    def _first_products(self, ids: Tensor, network: FoldedNetwork) -> tuple[Rows, Constants]:
        """In float32, in the form that products of bytes have."""
        layer = network.hidden[0]
        sums = self.buffer("hidden", 0, len(ids), layer.width)
        torch.mm(self.encode(ids), layer.weight, out=sums.tensor)
        return sums, (np.ones_like(layer.bias_array), np.zeros_like(layer.bias_array), layer.bias_array)

    def _through_any_layers(self, ids: Tensor, network: FoldedNetwork, layers: list[Int8Layer | None]) -> Tensor:
        rows = self.encode(ids)
        before: list[Tensor] = []
        for layer, original in zip(layers, network.hidden, strict=True):
            if layer is None or not before:
                after = torch.addmm(original.bias, rows, original.weight)
            else:
                inputs, row_scale = layer.quantize(rows)
                sums = torch._int_mm(inputs, layer.weight) + layer.carry
                after = sums * row_scale.unsqueeze(-1) * layer.scale + layer.bias
            after = ACTIVATIONS[self.scheme.activation](after)
            before.append(after + rows if self.scheme.architecture == "residual" and before else after)
            rows = torch.cat(before, dim=-1) if self.scheme.architecture == "densenet" else before[-1]
        return rows

    def _codes_as_bytes(self, ids: Tensor, row_scale: NDArray[np.float32]) -> Tensor:
        from ...kernels import hashing as loops

        hashes = self.bytes_from_hashes
        assert hashes is not None
        codes = self.buffer("bytes", 0, len(ids), hashes.num_hashes, torch.int8)
        loops.uniform_codes_as_bytes(ids.numpy(), self._coefficients, hashes.num_buckets, codes.array)
        row_scale.fill(1 / 127)
        return codes.tensor
