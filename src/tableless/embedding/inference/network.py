"""The network of a deep hash embedding as it answers requests, in float32.

Ids are grouped by expert and computed in chunks that stay in the CPU's cache. Threads share the chunks. Weights of few
bits become floats one layer at a time, always in the same memory.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...kernels.resources import in_parallel
from ..decoders import EmbeddingNetwork
from ..encoders import Encoder
from ..hashing import HashFamily
from ..layers import ACTIVATIONS
from .folding import FoldedNetwork, Layer, fold

CHUNK = 256
"""Rows whose activations stay in the second-level cache through all layers."""

_SHARE = CHUNK // 2  # with at least so many rows, a thread of their own is faster than torch's threads in each product


class Buffer(NamedTuple):
    """Memory to work in: the same numbers for torch and for compiled loops."""

    tensor: Tensor
    array: NDArray[Any]


class FloatNetwork:
    """Distinct ids → vectors, with the weights that the network had when this was made.

    A layer takes one matrix product and one compiled pass over its result, in buffers that are used again.
    """

    def __init__(self, encoder: Encoder, network: EmbeddingNetwork, router: HashFamily | None) -> None:
        self.encoder = encoder
        self.embedding_dim = network.embedding_dim
        self.router = router
        self.experts = fold(network)
        self.hashes = encoder.uniform_hashes
        self.coefficients = self.hashes.coefficients.numpy() if self.hashes else np.empty((0, 0), np.int64)
        self._buffers = threading.local()

    def __call__(self, ids: Tensor) -> Tensor:
        """Int64 [n] -> float32 [n, embedding_dim]."""
        out = torch.empty(len(ids), self.embedding_dim)
        if self.router is None:
            in_parallel(lambda start, stop: self._fill(out[start:stop], ids[start:stop], 0), len(ids), fewest=_SHARE)
            return out
        experts = self.router(ids)[:, 0]
        order = experts.argsort(stable=True)
        ends = torch.bincount(experts, minlength=len(self.experts)).cumsum(0).tolist()
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
                part = slice(start, start + CHUNK)
                output, rows = self.experts[expert].output, self.hidden(ids[part], expert)
                torch.addmm(output.bias, rows, output.floats(self.scratch), out=out[part])

    def hidden(self, ids: Tensor, expert: int) -> Tensor:
        """What the output layer is fed for at most CHUNK ids that belong to one expert."""
        network = self.experts[expert]
        return network.through_hidden(
            self.encode(ids), lambda number, rows: self._layer(network, number, rows), add=Tensor.add_
        )

    def _layer(self, network: FoldedNetwork, number: int, rows: Tensor) -> Tensor:
        # Two buffers in turn stay in the cache better than one for each layer. DenseNet needs them all to the end.
        place = number if network.architecture == "densenet" else number % 2
        layer = network.hidden[number]
        after = self.buffer("hidden", place, len(rows), layer.width)
        torch.mm(rows, layer.floats(self.scratch), out=after.tensor)
        _add_bias_and_activate(after, layer, network)
        return after.tensor

    def encode(self, ids: Tensor) -> Tensor:
        """The codes of at most CHUNK ids, [n, code_dim]."""
        if self.hashes is None:
            return self.encoder(ids).float()  # side features have the type of the model
        from ...kernels import id_loops as loops

        codes = self.buffer("codes", 0, len(ids), self.hashes.num_hashes)
        loops.uniform_codes(ids.numpy(), self.coefficients, self.hashes.num_buckets, codes.array)
        return codes.tensor

    def scratch(self, rows: int, columns: int) -> Tensor:
        """Memory for the floats of one layer: for this thread always the same, as large as the largest layer."""
        views: dict[tuple[int, int], Tensor] = self._buffers.__dict__.setdefault("scratch", {})
        if (rows, columns) not in views:
            if "floats" not in self._buffers.__dict__:
                layers = [layer for network in self.experts for layer in (*network.hidden, network.output)]
                self._buffers.floats = torch.empty(max(layer.num_floats for layer in layers))
            views[rows, columns] = self._buffers.floats[: rows * columns].view(rows, columns)
        return views[rows, columns]

    def buffer(self, name: str, number: int, rows: int, width: int, dtype: torch.dtype = torch.float32) -> Buffer:
        """[rows ≤ CHUNK, width] to work in: for this thread the same memory every time, which is in the cache already.

        Views of it are kept as well: for small batches, making them takes as long as the arithmetic.
        """
        views: dict[tuple[str, int, int, int], Buffer] = self._buffers.__dict__.setdefault("views", {})
        key = name, number, width, rows
        if key not in views:
            if rows == CHUNK:
                whole = torch.empty(CHUNK, width, dtype=dtype)
            else:
                whole = self.buffer(name, number, CHUNK, width, dtype).tensor[:rows]
            views[key] = Buffer(whole, whole.numpy())
        return views[key]


def _add_bias_and_activate(rows: Buffer, layer: Layer, network: FoldedNetwork) -> None:
    """In place."""
    if network.activation == "mish":
        from ...kernels import activations as loops

        loops.add_bias_and_mish(rows.array, layer.bias_array)
    else:
        rows.tensor.copy_(ACTIVATIONS[network.activation](rows.tensor.add_(layer.bias)))
