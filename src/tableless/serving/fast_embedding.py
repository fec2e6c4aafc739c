"""FastEmbedding: the same vectors as the scheme's, in little more than the time of its matrix products.

`HotIds` keeps the vectors of the ids that are asked for most often.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import get_args

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import Self

from ..embedding.inference import int8
from ..embedding.scheme import EmbeddingScheme, Precision, seeded
from ..embedding.weight_changes import Watch

_SAMPLE = 2048  # ids that show how large activations become
# How many ids are counted before hot ids are chosen: few at first, so that a quiet server soon has some, and twice as
# many each time, up to a number that costs nearly nothing and still lets the choice follow the traffic of the day.
_FIRST_CHOICE, _BETWEEN_CHOICES = 5_000, 200_000


class FastEmbedding(nn.Module):
    """A scheme's `forward` for serving: evaluation only, on the CPU, without gradients.

    The scheme says how it is served (`EmbeddingScheme.served`). A network computes each distinct id of a batch once, in
    chunks that stay in the cache, with batch norm folded in, on as many threads as torch has. Rows are looked up as
    they are. When the scheme's weights have changed, everything is made anew at the next call.

    `hot_ids` keeps the vectors of ids that are asked for often. These are the ids given, or as many as the number says,
    which are then learned from the traffic.

    `precision="int8"` computes hidden layers in 8-bit integers, in a fraction of the time, with small errors.
    `sample_ids` should be ids that the scheme was trained on: the numbers they give inside the network set the scales
    (any ids, if not given). If there is no layer to round, `precision` stays fp32.
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
        if precision == "int8" and not int8.is_supported():
            warnings.warn("int8 needs a CPU with VNNI instructions; computing in fp32 instead", stacklevel=2)
            precision = "fp32"
        self.scheme = scheme.eval()
        self.embedding_dim = scheme.embedding_dim
        self._asked_precision: Precision = precision
        self._sample_ids = _any_ids() if sample_ids is None else sample_ids.reshape(-1)[:_SAMPLE]
        self._asked_hot_ids = hot_ids
        self._lock = threading.Lock()
        self._watch = Watch(scheme)
        self._served = scheme.served(precision, self._sample_ids)
        self.hot_ids = self._make_hot_ids()

    @property
    def precision(self) -> Precision:
        """What is really computed: rows that are looked up, and networks without a layer to round, stay fp32."""
        return self._served.precision

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
        """It stays in evaluation mode, whatever the model around it does."""
        return super().train(False)

    def __reduce__(self) -> tuple[Callable[[EmbeddingScheme], FastEmbedding], tuple[EmbeddingScheme]]:
        """Copies and pickles hold the scheme and make the rest anew, because locks and threads can't be copied."""
        make = functools.partial(
            FastEmbedding, precision=self._asked_precision, hot_ids=self._asked_hot_ids, sample_ids=self._sample_ids
        )
        return make, (self.scheme,)

    def _renew_if_changed(self) -> None:
        with self._lock:
            if self._watch.has_changed():  # another thread may have done it meanwhile
                self._take_over()

    def _take_over(self) -> None:
        watch = Watch(self.scheme)
        self._served = self.scheme.served(self._asked_precision, self._sample_ids)
        if self.hot_ids is not None:
            self.hot_ids.renew()
        self._watch = watch  # last: until then other threads wait for the lock

    def _make_hot_ids(self) -> HotIds | None:
        asked = self._asked_hot_ids
        if isinstance(asked, int):
            return HotIds(asked, self._distinct_vectors) if asked else None
        ids = torch.unique(torch.as_tensor(asked, dtype=torch.int64))
        return HotIds(len(ids), self._distinct_vectors, ids=ids) if len(ids) else None

    def _vectors(self, ids: Tensor) -> Tensor:
        if not self.scheme.is_computed:
            return self._served.vectors(ids)
        distinct, inverse = _distinct(ids)
        return self._served.vectors(ids) if inverse is None else self._served.vectors(distinct)[inverse]

    @torch.inference_mode()
    def _distinct_vectors(self, ids: Tensor) -> Tensor:
        return self._served.vectors(ids)


def _distinct(ids: Tensor) -> tuple[Tensor, Tensor | None]:
    """The ids without repetition, and where to find each of those given; None if none is repeated."""
    from ..kernels import id_loops

    firsts, inverse = torch.empty_like(ids), torch.empty_like(ids)
    count = id_loops.distinct(ids.numpy(), firsts.numpy(), inverse.numpy())
    return (ids, None) if count == len(ids) else (ids[firsts[:count]], inverse)


def _any_ids() -> Tensor:
    return torch.randint(-(2**63), 2**63 - 1, (_SAMPLE,), generator=seeded(0))


class HotIds:
    """An index from hot ids to their vectors. The ids are given, or learned from the traffic.

    `compute` (ids → vectors) fills it. To learn, ids are counted in a table of fixed size, and now and then the most
    frequent are chosen. Counts are then halved, so that old traffic counts less and less.
    """

    def __init__(self, capacity: int, compute: Callable[[Tensor], Tensor], *, ids: Tensor | None = None) -> None:
        self.capacity = capacity
        self.hits = 0
        self.asked = 0
        self._compute = compute
        self._given = ids
        self._observed = 0
        self._until_choice = _FIRST_CHOICE
        self._lock = threading.Lock()
        size = _power_of_two(8 * capacity)
        self._counted, self._counts = np.zeros(size, np.int64), np.zeros(size if ids is None else 0, np.int32)
        self.renew()

    @property
    def ids(self) -> Tensor:
        """The ids whose vectors are kept now."""
        return self._ids

    def renew(self) -> None:
        """Compute the vectors anew, after the model has changed."""
        self._keep(self._given if self._given is not None else self._most_frequent())

    def look_up(self, ids: Tensor, out: Tensor) -> Tensor | None:
        """Write the vectors of hot ids to their places in `out`. Returns the places of all other ids, None if none."""
        from ..kernels import id_loops

        array = ids.numpy()
        keys, places, vectors = self._index  # read once: another thread may replace the index
        misses = np.empty(len(array), np.int64)
        missed = id_loops.look_up(array, keys, places, vectors, out.numpy(), misses)
        with self._lock:
            self.asked += len(array)
            self.hits += len(array) - missed
            chosen = self._observe(array) if self._given is None else None
        if chosen is not None:  # without the lock, since computing their vectors takes a while
            self._keep(chosen)
        return torch.from_numpy(misses[:missed]) if missed else None

    def _observe(self, ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Tensor | None:
        """Count ids. Returns the ids to keep from now on, if it is time to choose."""
        from ..kernels import id_loops

        id_loops.count_traffic(ids, self._counted, self._counts)
        self._observed += len(ids)
        if self._observed < self._until_choice:
            return None
        self._observed = 0
        self._until_choice = min(2 * self._until_choice, _BETWEEN_CHOICES)
        chosen = self._most_frequent()
        self._counts //= 2
        return chosen

    def _most_frequent(self) -> Tensor:
        seen = np.flatnonzero(self._counts)
        most = seen[np.argsort(-self._counts[seen], kind="stable")[: self.capacity]]
        return torch.from_numpy(np.unique(self._counted[most]))

    def _keep(self, ids: Tensor) -> None:
        from ..kernels import id_loops

        size = _power_of_two(2 * max(1, len(ids)))
        keys, places = np.zeros(size, np.int64), np.full(size, id_loops.EMPTY, np.int32)
        id_loops.build_index(ids.numpy(), keys, places)
        self._ids = ids
        self._index = (keys, places, self._compute(ids).numpy())


def _power_of_two(at_least: int) -> int:
    return 1 << max(1, at_least - 1).bit_length()
