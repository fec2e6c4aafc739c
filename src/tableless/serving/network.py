"""A deep hash embedding's network for serving: experts grouped, chunks that stay in the cache, every thread at work."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..embedding.activations import ACTIVATIONS
from ..embedding.deep_hash import DeepHashEmbedding
from ..embedding.encoders import DenseHashEncoder
from ..embedding.hashing import NUMBA_IS_INSTALLED, HashFamily
from ..embedding.workers import in_parallel
from .folding import FoldedLayer, fold

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
        from ..embedding import kernels

        codes = self.buffer("codes", 0, len(ids), self.hashes.num_hashes)
        kernels.uniform_codes(ids.numpy(), self._coefficients, self.hashes.num_buckets, codes.array)
        return codes.tensor

    def _activate(self, rows: Rows, layer: FoldedLayer) -> None:
        if self.scheme.activation == "mish" and NUMBA_IS_INSTALLED:
            from . import kernels

            kernels.add_bias_and_mish(rows.array, layer.bias_array)
        else:
            rows.tensor.copy_(ACTIVATIONS[self.scheme.activation](rows.tensor.add_(layer.bias)))


def uniform_hashes(scheme: DeepHashEmbedding) -> HashFamily | None:
    """The hashes of a scheme whose code is nothing but their uniform buckets, for which there are compiled loops."""
    encoder = scheme.encoder
    if isinstance(encoder, DenseHashEncoder) and encoder.distribution == "uniform" and NUMBA_IS_INSTALLED:
        return encoder.hashes
    return None
