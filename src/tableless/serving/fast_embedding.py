"""FastEmbedding: the same vectors as the scheme's, in little more than the time of its matrix products.

Noticing that a model has changed, at the cost of a glance at each of its tensors."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ..embedding.deep_hash import DeepHashEmbedding
from ..embedding.head_and_tail import HeadAndTail
from ..embedding.inference import int8 as int8_network
from ..embedding.inference.network import FloatNetwork, ServingNetwork
from ..embedding.scheme import EmbeddingScheme, seeded
from .hot_ids import HotIds

Precision = Literal["fp32", "int8"]
_SAMPLE = 2048  # ids that show how large activations become


class FastEmbedding(nn.Module):
    """A scheme's `forward` for serving: evaluation only, on the CPU, without gradients.

    Each distinct id is computed once, in chunks that stay in the cache, by networks with batch norm folded in, on as
    many threads as torch has. `hot_ids` keeps the vectors of ids that are asked for often: given (a tensor of ids), or
    as many as the number says, learned from the traffic. When the scheme's weights have changed, everything is made
    anew at the next call. Schemes that only look up rows are called as they are.

    `precision="int8"` computes the hidden layers in 8-bit integers, in a fraction of the time, with small errors;
    `sample_ids` should be ids it was trained on, whose activations then set the scales (any ids, if not given). Where
    there is no layer to round, `precision` stays fp32.
    """

    def __init__(
        self,
        scheme: EmbeddingScheme,
        *,
        precision: Precision = "fp32",
        hot_ids: int | Tensor | Sequence[int] = 0,
        sample_ids: Tensor | None = None,
    ) -> None:
        super().__init__()
        if precision not in get_args(Precision):
            raise ValueError(f"precision is {precision!r}; it must be one of {', '.join(get_args(Precision))}")
        if isinstance(hot_ids, int) and hot_ids < 0:
            raise ValueError(f"hot_ids is {hot_ids}; it must be 0 or more, or the ids themselves")
        if precision == "int8" and not (int8_network.is_supported()):
            warnings.warn("int8 needs a CPU with VNNI instructions; computing in fp32 instead", stacklevel=2)
            precision = "fp32"
        self.scheme = scheme.eval()
        self.embedding_dim = scheme.embedding_dim
        self._asked_precision: Precision = precision
        self._sample_ids = _any_ids() if sample_ids is None else sample_ids.reshape(-1)[:_SAMPLE]
        self._asked_hot_ids = hot_ids
        self._lock = threading.Lock()
        self._watch = Watch(scheme)
        self._fold()
        given = None if isinstance(hot_ids, int) else torch.unique(torch.as_tensor(hot_ids, dtype=torch.int64))
        capacity = hot_ids if isinstance(hot_ids, int) else len(given) if given is not None else 0
        self.hot_ids = HotIds(capacity, self._distinct_vectors, ids=given) if capacity else None

    @property
    def precision(self) -> Precision:
        """What is really computed: rows that are looked up, and networks without a layer to round, stay fp32."""
        return "int8" if isinstance(self._network, int8_network.Int8Network) and self._network.rounds else "fp32"

    @torch.inference_mode()
    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        if self._watch.has_changed():
            self._renew_if_changed()
        flat = ids.reshape(-1)
        if self.hot_ids is None:
            return self._vectors(flat).view(*ids.shape, self.embedding_dim)
        out = torch.empty(len(flat), self.embedding_dim)
        misses = self.hot_ids.look_up(flat.contiguous(), out)
        if misses is not None:
            out.index_copy_(0, misses, self._vectors(flat[misses]))
        return out.view(*ids.shape, self.embedding_dim)

    def renew(self) -> None:
        """Take over the scheme's weights as they are now. `forward` does so by itself when it sees a change."""
        with self._lock:
            self._take_over()

    def train(self, mode: bool = True) -> Self:
        """It only ever evaluates, whatever the model around it does."""
        return super().train(False)

    def __reduce__(self) -> tuple[Callable[[EmbeddingScheme], FastEmbedding], tuple[EmbeddingScheme]]:
        """A copy, or the same in another process: made anew from the scheme, since locks and threads stay behind."""
        make = functools.partial(
            FastEmbedding, precision=self._asked_precision, hot_ids=self._asked_hot_ids, sample_ids=self._sample_ids
        )
        return make, (self.scheme,)

    def _renew_if_changed(self) -> None:
        with self._lock:
            if self._watch.has_changed():  # no other thread has seen to it meanwhile
                self._take_over()

    def _take_over(self) -> None:
        watch = Watch(self.scheme)
        self._fold()
        if self.hot_ids is not None:
            self.hot_ids.renew()
        self._watch = watch  # last: until then other threads wait for the lock

    def _fold(self) -> None:
        network = self.scheme.tail if isinstance(self.scheme, HeadAndTail) else self.scheme
        self._network: ServingNetwork | None = None
        if isinstance(network, DeepHashEmbedding) and self._asked_precision == "int8":
            self._network = int8_network.Int8Network(network, self._sample_ids)
        elif isinstance(network, DeepHashEmbedding):
            self._network = FloatNetwork(network)

    def _vectors(self, ids: Tensor) -> Tensor:
        if self._network is None:
            return self.scheme(ids)
        distinct, inverse = _distinct(ids)
        return self._distinct_vectors(ids) if inverse is None else self._distinct_vectors(distinct)[inverse]

    @torch.inference_mode()
    def _distinct_vectors(self, ids: Tensor) -> Tensor:
        if self._network is None:
            return self.scheme(ids)
        if not isinstance(self.scheme, HeadAndTail):
            return self._network(ids)
        rows, is_frequent = self.scheme.head(ids)
        rest = (~is_frequent).nonzero().squeeze(-1)
        return rows.index_copy_(0, rest, self._network(ids[rest]))


def _distinct(ids: Tensor) -> tuple[Tensor, Tensor | None]:
    """The ids without repetition, and where to find each of those given; None if none is repeated."""
    from ..kernels import id_index

    firsts, inverse = torch.empty_like(ids), torch.empty_like(ids)
    count = id_index.distinct(ids.numpy(), firsts.numpy(), inverse.numpy())
    return (ids, None) if count == len(ids) else (ids[firsts[:count]], inverse)


def _any_ids() -> Tensor:
    return torch.randint(-(2**63), 2**63 - 1, (_SAMPLE,), generator=seeded(0))


class Watch:
    """Knows the parameters and buffers of a module as they were when it was made."""

    def __init__(self, module: nn.Module) -> None:
        self._seen: list[tuple[dict[str, Tensor | None], str, Tensor, int]] = []
        for part in module.modules():
            for owner in (part._parameters, part._buffers):
                for name, tensor in owner.items():
                    if tensor is not None:
                        self._seen.append((owner, name, tensor, _version(tensor)))  # type: ignore[arg-type]

    def has_changed(self) -> bool:
        """Has a tensor been written to, or exchanged for another? (Writing to `.data` can't be seen.)"""
        return any(
            owner[name] is not tensor or tensor._version != version for owner, name, tensor, version in self._seen
        )


def _version(tensor: Tensor) -> int:
    if tensor.is_inference():
        raise ValueError(
            "the scheme was built under torch.inference_mode(), where torch does not record changes; build it outside"
        )
    return tensor._version
