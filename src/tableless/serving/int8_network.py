"""The network in 8-bit integers: a product of bytes, and one compiled pass to the bytes of the next layer."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..embedding.activations import ACTIVATIONS
from ..embedding.deep_hash import DeepHashEmbedding
from .folding import FoldedNetwork
from .network import FloatNetwork, Rows
from .quantization import Constants, Int8Layer

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
        from . import kernels

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
                kernels.mish_of_sums(sums.array, row_scale, *constants, after.array)
                return after.tensor
            inputs, array = self.buffer("bytes", 0, count, sums.array.shape[1], torch.int8)
            kernels.mish_of_sums_as_bytes(
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
        from ..embedding import kernels

        hashes = self.bytes_from_hashes
        assert hashes is not None
        codes = self.buffer("bytes", 0, len(ids), hashes.num_hashes, torch.int8)
        kernels.uniform_codes_as_bytes(ids.numpy(), self._coefficients, hashes.num_buckets, codes.array)
        row_scale.fill(1 / 127)
        return codes.tensor
