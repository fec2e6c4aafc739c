"""FastEmbedding: the same vectors as the scheme's, in little more than the time of its matrix products."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..embedding.activations import ACTIVATIONS
from ..embedding.deep_hash import DeepHashEmbedding
from ..embedding.encoders import DenseHashEncoder
from ..embedding.hashing import NUMBA_IS_INSTALLED
from ..embedding.head_and_tail import HeadAndTail
from ..embedding.scheme import EmbeddingScheme
from .folding import FoldedLayer, FoldedNetwork, fold
from .hot_ids import HotIds
from .workers import in_parallel

_CHUNK = 256  # rows whose activations stay in the second-level cache through all layers


class FastEmbedding(nn.Module):
    """A scheme's `forward` for serving: evaluation only, on the CPU, without gradients.

    Each distinct id is computed once, in chunks that stay in the cache, by networks with batch norm folded in, on as
    many threads as torch has. `hot_ids` keeps the vectors of ids that are asked for often: given (a tensor of ids), or
    as many as the number says, learned from the traffic. When the scheme's weights have changed, everything is made
    anew at the next call. Schemes that only look up rows are called as they are.
    """

    def __init__(self, scheme: EmbeddingScheme, *, hot_ids: int | Tensor | Sequence[int] = 0) -> None:
        super().__init__()
        self.scheme = scheme.eval()
        self.embedding_dim = scheme.embedding_dim
        self._lock = threading.Lock()
        self._fold()
        given = None if isinstance(hot_ids, int) else torch.unique(torch.as_tensor(hot_ids, dtype=torch.int64))
        capacity = hot_ids if isinstance(hot_ids, int) else len(given) if given is not None else 0
        self.hot_ids = HotIds(capacity, self._distinct_vectors, ids=given) if capacity and NUMBA_IS_INSTALLED else None

    @torch.inference_mode()
    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        if self._version != _version_of(self.scheme):
            self.renew()
        flat = ids.reshape(-1)
        if self.hot_ids is None:
            return self._vectors(flat).view(*ids.shape, self.embedding_dim)
        out = torch.empty(len(flat), self.embedding_dim)
        misses = self.hot_ids.look_up(flat.contiguous(), out)
        if misses is not None:
            out.index_copy_(0, misses, self._vectors(flat[misses]))
        return out.view(*ids.shape, self.embedding_dim)

    def renew(self) -> None:
        """Take over the scheme's weights as they are now. `forward` does so by itself when they have changed."""
        with self._lock:
            if self._version != _version_of(self.scheme):
                self._fold()
                if self.hot_ids is not None:
                    self.hot_ids.renew()

    def _fold(self) -> None:
        self._version = _version_of(self.scheme)
        network = self.scheme.tail if isinstance(self.scheme, HeadAndTail) else self.scheme
        self._network = _Network(network) if isinstance(network, DeepHashEmbedding) else None

    def _vectors(self, ids: Tensor) -> Tensor:
        if self._network is None:
            return self.scheme(ids)
        distinct, inverse = torch.unique(ids, return_inverse=True)
        if len(distinct) == len(ids):  # nothing is gained by putting them in order
            return self._distinct_vectors(ids)
        return self._distinct_vectors(distinct)[inverse]

    @torch.inference_mode()
    def _distinct_vectors(self, ids: Tensor) -> Tensor:
        if self._network is None:
            return self.scheme(ids)
        if not isinstance(self.scheme, HeadAndTail):
            return self._network(ids)
        rows, is_frequent = self.scheme.head(ids)
        rest = (~is_frequent).nonzero().squeeze(-1)
        return rows.index_copy_(0, rest, self._network(ids[rest]))


class _Network:
    """A deep hash embedding's folded networks, and the buffers of each thread that runs them."""

    def __init__(self, scheme: DeepHashEmbedding) -> None:
        self.scheme = scheme
        self.experts = fold(scheme.decoder)
        self.activation = scheme.activation
        self.buffers = threading.local()

    def __call__(self, ids: Tensor) -> Tensor:
        """Int64 [n] -> float32 [n, embedding_dim]."""
        out = torch.empty(len(ids), self.scheme.embedding_dim)
        if self.scheme.router is None:
            in_parallel(lambda start, stop: self._fill(out[start:stop], ids[start:stop], self.experts[0]), len(ids))
            return out
        expert = self.scheme.router(ids)[:, 0]
        order = expert.argsort(stable=True)
        ends = torch.bincount(expert, minlength=len(self.experts)).cumsum(0).tolist()
        ids, sorted_out = ids[order], torch.empty_like(out)

        def fill(start: int, stop: int) -> None:
            for network, begin, end in zip(self.experts, [0, *ends], ends, strict=False):
                begin, end = max(begin, start), min(end, stop)
                if begin < end:
                    self._fill(sorted_out[begin:end], ids[begin:end], network)

        in_parallel(fill, len(ids))
        return out.index_copy_(0, order, sorted_out)

    def _fill(self, out: Tensor, ids: Tensor, network: FoldedNetwork) -> None:
        with torch.inference_mode():  # this may be another thread than the caller's
            for start in range(0, len(ids), _CHUNK):
                self._compute(out[start : start + _CHUNK], ids[start : start + _CHUNK], network)

    def _compute(self, out: Tensor, ids: Tensor, network: FoldedNetwork) -> None:
        rows = self._encode(ids)
        before: list[Tensor] = []
        for number, layer in enumerate(network.hidden):
            after = self._buffer(("hidden", number), layer.weight.shape[1])[: len(ids)]
            self._activate(torch.mm(rows, layer.weight, out=after), layer)
            if self.scheme.architecture == "residual" and before:
                after.add_(rows)
            before.append(after)
            rows = torch.cat(before, dim=-1) if self.scheme.architecture == "densenet" else after
        torch.addmm(network.output.bias, rows, network.output.weight, out=out)

    def _encode(self, ids: Tensor) -> Tensor:
        encoder = self.scheme.encoder
        if not isinstance(encoder, DenseHashEncoder) or encoder.distribution != "uniform" or not NUMBA_IS_INSTALLED:
            return encoder(ids)
        from ..embedding import kernels

        codes = self._buffer("codes", encoder.code_dim)[: len(ids)]
        hashes = encoder.hashes
        kernels.uniform_codes(ids.numpy(), hashes.coefficients.numpy(), hashes.num_buckets, codes.numpy())
        return codes

    def _activate(self, rows: Tensor, layer: FoldedLayer) -> None:
        if self.activation == "mish" and NUMBA_IS_INSTALLED:
            from . import kernels

            kernels.add_bias_and_mish(rows.numpy(), layer.bias.numpy())
        else:
            rows.copy_(ACTIVATIONS[self.activation](rows.add_(layer.bias)))

    def _buffer(self, key: Any, width: int) -> Tensor:
        """[_CHUNK, width], the same one for this thread every time."""
        kept: dict[Any, Tensor] = self.buffers.__dict__
        if key not in kept:
            kept[key] = torch.empty(_CHUNK, width)
        return kept[key]


def _version_of(scheme: nn.Module) -> int:
    """A number that changes when a weight is written to."""
    return sum(tensor._version for tensor in (*scheme.parameters(), *scheme.buffers()))
