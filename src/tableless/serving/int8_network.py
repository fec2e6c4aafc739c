"""The network in 8-bit integers: weights scaled by output, activations by ranges seen on sample ids."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..embedding.activations import ACTIVATIONS
from ..embedding.deep_hash import DeepHashEmbedding
from .folding import FoldedLayer, FoldedNetwork, fold
from .network import ServingNetwork, uniform_hashes

_LEVELS = 255  # of an unsigned byte, counted from 0
CODE_ZERO, CODE_SCALE = 127, 1 / 127
"""Uniform codes in [-1, 1] as bytes 0 … 254: 0 is exact, and they come straight from the buckets."""


def is_supported() -> bool:
    """Has this CPU the instructions (VNNI) without which 8-bit products are slower than float32 ones?"""
    return torch.cpu._is_vnni_supported()


@dataclass(frozen=True)
class Range:
    """How real numbers are bytes: (byte - zero) · scale."""

    scale: float
    zero: int

    @classmethod
    def of(cls, rows: Tensor) -> Range:
        """The narrowest that holds all numbers of a sample, and 0."""
        low, high = min(float(rows.min()), 0.0), max(float(rows.max()), 1e-6)
        scale = (high - low) / _LEVELS
        return cls(scale, round(-low / scale))


@dataclass(frozen=True)
class Int8Layer:
    """A linear layer whose inputs are bytes and whose outputs are float32."""

    inputs: Range
    packed: Tensor
    scales: Tensor  # [outputs]
    zeros: Tensor  # [outputs], all 0: weights are symmetric
    bias: Tensor  # [outputs]

    @classmethod
    def of(cls, layer: FoldedLayer, inputs: Range) -> Int8Layer:
        """Each output has a scale of its own, so that one large weight does not blur the others' small ones."""
        scales = layer.weight.abs().amax(0).clamp(min=1e-12) / 127
        weight = torch.round(layer.weight / scales).to(torch.int8).T.contiguous()  # [outputs, inputs]
        packed = torch.ops.onednn.qlinear_prepack(weight, None)
        return cls(inputs, packed, scales, torch.zeros(len(scales), dtype=torch.int64), layer.bias)

    def __call__(self, rows: Tensor) -> Tensor:
        """Bytes [n, inputs] -> float32 [n, outputs]."""
        return torch.ops.onednn.qlinear_pointwise(
            rows,
            self.inputs.scale,
            self.inputs.zero,
            self.packed,
            self.scales,
            self.zeros,
            self.bias,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )


class Int8Network(ServingNetwork):
    """In int8, but for the output layer: it is little of the work, and its rounding would go into every vector."""

    def __init__(self, scheme: DeepHashEmbedding, sample_ids: Tensor) -> None:
        super().__init__(scheme)
        folded = fold(scheme.decoder)
        with torch.inference_mode():
            codes = scheme.encoder(sample_ids)
            self.experts = [self._quantize(network, codes) for network in folded]
        self.outputs = [network.output for network in folded]

    def compute(self, out: Tensor, ids: Tensor, expert: int) -> None:
        """As in float32, with each layer's inputs made into bytes first."""
        from . import kernels

        layers, architecture = self.experts[expert], self.scheme.architecture
        output = self.outputs[expert]
        rows, inputs = self._encode(ids, layers)
        before: list[Tensor] = []
        for number, layer in enumerate(layers):
            after = layer(inputs)
            following = layers[number + 1].inputs if number + 1 < len(layers) else None
            if self.scheme.activation == "mish" and architecture not in ("residual", "densenet") and following:
                inputs = self.buffer("inputs", number + 1, after.shape[1], torch.uint8)[: len(ids)]
                kernels.mish_to_bytes(after.numpy(), following.scale, following.zero, inputs.numpy())
                continue
            rows_before, rows = rows, ACTIVATIONS[self.scheme.activation](after)
            if architecture == "residual" and before:
                rows = rows + rows_before
            before.append(rows)
            rows = torch.cat(before, dim=-1) if architecture == "densenet" else rows
            if following:
                inputs = self._bytes(rows, following)
        torch.addmm(output.bias, rows, output.weight, out=out)

    def _quantize(self, network: FoldedNetwork, codes: Tensor) -> list[Int8Layer]:
        ranges = [Range.of(rows) for rows in network.inputs_of_layers(codes, self.scheme)]
        if uniform_hashes(self.scheme) is not None:
            ranges[0] = Range(CODE_SCALE, CODE_ZERO)
        return [Int8Layer.of(layer, inputs) for layer, inputs in zip(network.hidden, ranges, strict=False)]

    def _encode(self, ids: Tensor, layers: list[Int8Layer]) -> tuple[Tensor, Tensor]:
        """Codes as real numbers, if anything needs them, and as bytes."""
        hashes = uniform_hashes(self.scheme)
        if not layers or hashes is None:
            codes = self.scheme.encoder(ids)
            return codes, self._bytes(codes, layers[0].inputs) if layers else codes
        from ..embedding import kernels

        inputs = self.buffer("inputs", 0, hashes.num_hashes, torch.uint8)[: len(ids)]
        kernels.uniform_codes_as_bytes(ids.numpy(), hashes.coefficients.numpy(), hashes.num_buckets, inputs.numpy())
        return inputs, inputs

    @staticmethod
    def _bytes(rows: Tensor, inputs: Range) -> Tensor:
        return (rows / inputs.scale + inputs.zero).round_().clamp_(0, _LEVELS).to(torch.uint8)
