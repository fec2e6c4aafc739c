"""The network of a deep hash embedding as it answers requests, in 8-bit integers.

A layer is a product of bytes and one compiled pass, whose result is the bytes that the next layer is fed. Weights are
rounded so that their errors cancel in what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ...kernels import Floats
from ..decoders import EmbeddingNetwork
from ..encoders import Encoder
from ..hashing import HashFamily
from ..layers import ACTIVATIONS
from .folding import FoldedNetwork, Layer
from .network import Buffer, FloatNetwork
from .packed_layer import PackedLayer

Constants = tuple[Floats, Floats, Floats]

_DAMPING = 1e-3  # of the mean input, added to each: keeps the inverse finite where an input never varies
_FEWEST_HASHES = 128  # with fewer, the first layer is little of the work, and its errors would grow in all later ones


def is_supported() -> bool:
    """Has this CPU the VNNI instructions? Without them 8-bit products are slower than float32 ones."""
    return torch.cpu._is_vnni_supported()


class Int8Network(FloatNetwork):
    """Hidden layers in int8. The output layer and a small first layer are little of the work and stay in float32."""

    def __init__(
        self, encoder: Encoder, network: EmbeddingNetwork, router: HashFamily | None, sample_ids: Tensor
    ) -> None:
        super().__init__(encoder, network, router)
        self.bytes_from_hashes = self.hashes if encoder.code_dim >= _FEWEST_HASHES else None
        # Is there the quick path, where every layer turns bytes into bytes?
        self.is_simple = network.activation == "mish" and network.architecture not in ("residual", "densenet")
        with torch.inference_mode():
            codes = encoder(sample_ids).float()
            self.layers = [self._quantize(expert, codes) for expert in self.experts]

    @property
    def rounds(self) -> bool:
        """Is any layer computed in bytes? In a network with one small hidden layer, or none, all are in float32."""
        first = 0 if self.is_simple else 1  # other networks always have their first layer in float32
        return any(layer is not None for layers in self.layers for layer in layers[first:])

    def hidden(self, ids: Tensor, expert: int) -> Tensor:
        """As in float32, but the inputs of layers are bytes."""
        network, layers = self.experts[expert], self.layers[expert]
        if not self.is_simple:
            return network.through_hidden(
                self.encode(ids), lambda number, rows: _any_layer(network, layers[number], number, rows)
            )
        row_scale = self.buffer("scale", 0, len(ids), 1).array[:, 0]
        codes = self._codes_as_bytes(ids, row_scale) if layers and layers[0] is not None else self.encode(ids)
        return network.through_hidden(
            codes, lambda number, rows: self._simple_layer(network, layers, row_scale, number, rows)
        )

    def _quantize(self, network: FoldedNetwork, codes: Tensor) -> list[Int8Layer | None]:
        """A layer each; None for a first layer that stays in float32."""
        layers: list[Int8Layer | None] = []
        for number, (layer, inputs) in enumerate(zip(network.hidden, network.inputs_of_hidden(codes), strict=True)):
            if number > 0:
                layers.append(Int8Layer.of(layer, inputs))
            else:
                layers.append(Int8Layer.of_codes(layer, inputs) if self.bytes_from_hashes else None)
        return layers

    def _simple_layer(
        self, network: FoldedNetwork, layers: list[Int8Layer | None], row_scale: Floats, number: int, rows: Tensor
    ) -> Tensor:
        """Bytes in, bytes out, except that a first layer may be fed floats and the last one puts out floats.

        `row_scale` [n] are the scales of the rows that come in, and afterwards those of the rows that go out.
        """
        from ...kernels import activations as loops

        layer = layers[number]
        if layer is None:
            row_scale.fill(1)
            sums, constants = self._float_products(rows, network.hidden[number])
        else:
            sums = self.buffer("sums", 0, len(rows), len(layer.bias), torch.int32)
            torch._int_mm(rows, layer.weight, out=sums.tensor)
            constants = layer.constants
        width = sums.array.shape[1]
        following = layers[number + 1] if number + 1 < len(layers) else None
        if following is None:
            floats = self.buffer("hidden", 1, len(rows), width)
            loops.mish_of_sums(sums.array, row_scale, *constants, floats.array)
            return floats.tensor
        after = self.buffer("bytes", 0, len(rows), width, torch.int8)
        loops.mish_of_sums_as_bytes(
            sums.array, row_scale, *constants, following.floor, following.inverse_channel_array, after.array, row_scale
        )
        return after.tensor

    def _float_products(self, codes: Tensor, layer: Layer) -> tuple[Buffer, Constants]:
        """The first layer in float32, in the form that products of bytes have."""
        sums = self.buffer("hidden", 0, len(codes), layer.width)
        torch.mm(codes, layer.floats(self.scratch), out=sums.tensor)
        return sums, (np.ones_like(layer.bias_array), np.zeros_like(layer.bias_array), layer.bias_array)

    def _codes_as_bytes(self, ids: Tensor, row_scale: Floats) -> Tensor:
        from ...kernels import id_loops as loops

        hashes = self.bytes_from_hashes
        assert hashes is not None
        codes = self.buffer("bytes", 0, len(ids), hashes.num_hashes, torch.int8)
        loops.uniform_codes_as_bytes(ids.numpy(), self.coefficients, hashes.num_buckets, codes.array)
        row_scale.fill(1 / 127)
        return codes.tensor


def _any_layer(network: FoldedNetwork, layer: Int8Layer | None, number: int, rows: Tensor) -> Tensor:
    """A layer of any architecture and activation, from floats to floats. The first one is computed in float32."""
    if layer is None or number == 0:
        original = network.hidden[number]
        after = torch.addmm(original.bias, rows, original.weight)  # made anew, if it is packed
    else:
        inputs, row_scale = layer.quantize(rows)
        sums = torch._int_mm(inputs, layer.weight) + layer.carry
        after = sums * row_scale.unsqueeze(-1) * layer.scale + layer.bias
    return ACTIVATIONS[network.activation](after)


@dataclass(frozen=True)
class Int8Layer:
    """rows @ weight + bias, for rows given as row_scale · channel · (byte + 128) + floor.

    `channel` gives each input a scale of its own, so that an input with large values does not take the precision of
    the others. It is multiplied into the weights. The terms of the constants 128 and `floor` are the same for all rows:
    they are in `carry` and `bias`.
    """

    weight: Tensor  # int8 [inputs, outputs]
    scale: Tensor  # float32 [outputs]
    carry: Tensor  # float32 [outputs]
    bias: Tensor  # float32 [outputs]
    floor: float
    inverse_channel: Tensor  # float32 [inputs]

    @classmethod
    def of(cls, layer: Layer, sample: Tensor) -> Int8Layer:
        """For inputs like those of a sample [n, inputs].

        Integers that are stored are taken as they are. Rounding them a second time, with scales for the inputs, had
        more than twice the error (docs/tried.md).
        """
        floor = float(sample.min())
        if isinstance(layer, PackedLayer) and layer.bits <= 8:
            integers, scale = layer.integers()
            sums = integers.sum(0, dtype=torch.float32)
            same = torch.ones(len(integers))
            return cls(integers, scale, 128 * sums, layer.bias + floor * scale * sums, floor, same)
        weight = layer.weight
        # The root goes half the way to equal ranges of the inputs: all the way would make the weights' too unequal.
        channel = (sample - floor).amax(0).clamp(min=1e-6).sqrt()
        integers, scale = round_weights(weight * channel.unsqueeze(-1), (sample - floor) / channel)
        return cls(
            weight=integers,
            scale=scale,
            carry=128 * integers.sum(0, dtype=torch.float32),
            bias=layer.bias + floor * weight.sum(0),
            floor=floor,
            inverse_channel=1 / channel,
        )

    @classmethod
    def of_codes(cls, layer: Layer, sample: Tensor) -> Int8Layer:
        """For uniform codes, which are row_scale · byte, with a row_scale of 1/127 everywhere."""
        if isinstance(layer, PackedLayer) and layer.bits <= 8:
            integers, scale = layer.integers()
        else:
            integers, scale = round_weights(layer.weight, sample)
        nothing = torch.zeros_like(scale)
        return cls(integers, scale, nothing, layer.bias, 0.0, torch.ones(len(integers)))

    @cached_property
    def constants(self) -> Constants:
        """For compiled loops: the factor of a sum, what is added before a row's scale, and what is added after it."""
        return self.scale.numpy(), (self.scale * self.carry).numpy(), self.bias.numpy()

    @cached_property
    def inverse_channel_array(self) -> Floats:
        """`inverse_channel` for compiled loops."""
        return self.inverse_channel.numpy()

    def quantize(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Float32 [n, inputs] -> int8 [n, inputs] and the scale of each row, [n]."""
        steps = ((rows - self.floor) * self.inverse_channel).clamp_(min=0)
        scale = steps.amax(-1).clamp_(min=1e-12) / 255
        return (steps / scale.unsqueeze(-1)).round_().sub_(128).to(torch.int8), scale


def round_weights(weight: Tensor, sample: Tensor) -> tuple[Tensor, Tensor]:
    """[inputs, outputs] and a sample of the inputs -> int8 weights and the scale of each output.

    The weights of one input are rounded after those of another. Rounding changes the outputs, and the weights that are
    not rounded yet are changed so that they make up for it, as far as the sample says that inputs vary together
    (optimal brain quantisation, as in GPTQ).
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
