"""A trained network as plain matrices: batch norm folded into the weights, experts apart.

A deep hash embedding's network for serving: experts grouped, chunks that stay in the cache, every thread at work."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ...kernels.resources import in_parallel
from ..decoders import EmbeddingNetwork
from ..deep_hash import DeepHashEmbedding
from ..encoders import DenseHashEncoder
from ..hashing import HashFamily
from ..layers import ACTIVATIONS, BatchNorm

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


CHUNK = 256
"""Rows whose activations stay in the second-level cache through all layers."""

_SHARE = CHUNK // 2  # rows from which a thread of their own is faster than torch's threads in each product


class Rows(NamedTuple):
    """Memory to work in, for torch and for compiled loops."""

    tensor: Tensor
    array: NDArray[Any]


class ServingNetwork(ABC):
    """Distinct ids → vectors. Weights are those of the scheme when it was made."""

    def __init__(self, scheme: DeepHashEmbedding) -> None:
        self.scheme = scheme
        self._buffers = threading.local()

    def __call__(self, ids: Tensor) -> Tensor:
        """Int64 [n] -> float32 [n, embedding_dim]."""
        out = torch.empty(len(ids), self.scheme.embedding_dim)
        if self.scheme.router is None:
            in_parallel(lambda start, stop: self._fill(out[start:stop], ids[start:stop], 0), len(ids), fewest=_SHARE)
            return out
        experts = self.scheme.router(ids)[:, 0]
        order = experts.argsort(stable=True)
        ends = torch.bincount(experts, minlength=self.scheme.num_experts).cumsum(0).tolist()
        starts = [0, *ends[:-1]]
        sorted_ids, sorted_out = ids[order], torch.empty_like(out)

        def fill(start: int, stop: int) -> None:
            for expert, (first, last) in enumerate(zip(starts, ends, strict=True)):
                first, last = max(first, start), min(last, stop)
                if first < last:
                    self._fill(sorted_out[first:last], sorted_ids[first:last], expert)

        in_parallel(fill, len(ids), fewest=_SHARE)
        return out.index_copy_(0, order, sorted_out)

    def _fill(self, out: Tensor, ids: Tensor, expert: int) -> None:
        with torch.inference_mode():  # this may be another thread than the caller's
            for start in range(0, len(ids), CHUNK):
                self.compute(out[start : start + CHUNK], ids[start : start + CHUNK], expert)

    @abstractmethod
    def compute(self, out: Tensor, ids: Tensor, expert: int) -> None:
        """Write the vectors of at most CHUNK ids that belong to one expert."""

    def buffer(self, name: str, number: int, rows: int, width: int, dtype: torch.dtype = torch.float32) -> Rows:
        """[rows ≤ CHUNK, width] to work in: for this thread the same memory every time, which is in the cache already.

        Views of it are kept as well: for small batches, to make them takes as long as the arithmetic.
        """
        views: dict[tuple[str, int, int, int], Rows] = self._buffers.__dict__.setdefault("views", {})
        key = name, number, width, rows
        if key not in views:
            if rows == CHUNK:
                whole = torch.empty(CHUNK, width, dtype=dtype)
            else:
                whole = self.buffer(name, number, CHUNK, width, dtype).tensor[:rows]
            views[key] = Rows(whole, whole.numpy())
        return views[key]


class FloatNetwork(ServingNetwork):
    """In float32: one matrix product and one compiled pass for each layer."""

    def __init__(self, scheme: DeepHashEmbedding) -> None:
        super().__init__(scheme)
        self.experts = fold(scheme.decoder)
        self.hashes = uniform_hashes(scheme)
        self._coefficients = self.hashes.coefficients.numpy() if self.hashes else np.empty((0, 0), np.int64)

    def compute(self, out: Tensor, ids: Tensor, expert: int) -> None:
        """As the scheme does, into buffers that are used again."""
        network, architecture = self.experts[expert], self.scheme.architecture
        rows = self.encode(ids)
        before: list[Tensor] = []
        for number, layer in enumerate(network.hidden):
            # Two in turn stay in the cache better than one for each layer; DenseNet needs them all to the end.
            place = number if architecture == "densenet" else number % 2
            after = self.buffer("hidden", place, len(ids), layer.width)
            torch.mm(rows, layer.weight, out=after.tensor)
            self._activate(after, layer)
            if architecture == "residual" and before:
                after.tensor.add_(rows)
            before.append(after.tensor)
            rows = torch.cat(before, dim=-1) if architecture == "densenet" else after.tensor
        torch.addmm(network.output.bias, rows, network.output.weight, out=out)

    def encode(self, ids: Tensor) -> Tensor:
        """The codes of at most CHUNK ids, [n, code_dim]."""
        if self.hashes is None:
            return self.scheme.encoder(ids)
        from ...kernels import hashing as loops

        codes = self.buffer("codes", 0, len(ids), self.hashes.num_hashes)
        loops.uniform_codes(ids.numpy(), self._coefficients, self.hashes.num_buckets, codes.array)
        return codes.tensor

    def _activate(self, rows: Rows, layer: FoldedLayer) -> None:
        if self.scheme.activation == "mish":
            from ...kernels import activations as loops

            loops.add_bias_and_mish(rows.array, layer.bias_array)
        else:
            rows.tensor.copy_(ACTIVATIONS[self.scheme.activation](rows.tensor.add_(layer.bias)))


def uniform_hashes(scheme: DeepHashEmbedding) -> HashFamily | None:
    """The hashes of a scheme whose code is nothing but their uniform buckets, for which there are compiled loops."""
    encoder = scheme.encoder
    if isinstance(encoder, DenseHashEncoder) and encoder.distribution == "uniform":
        return encoder.hashes
    return None
