"""HotIds: the vectors of the ids that are asked for most often, kept ready."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

# How many ids are counted before hot ids are chosen: few at first, so that a quiet server soon has some, and twice as
# many each time, up to a number that costs nearly nothing and still lets the choice follow the traffic of the day.
_FIRST_CHOICE, _BETWEEN_CHOICES = 5_000, 200_000


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
        from ..kernels import id_index

        array = ids.numpy()
        keys, places, vectors = self._index  # read once: another thread may replace the index
        misses = np.empty(len(array), np.int64)
        missed = id_index.look_up(array, keys, places, vectors, out.numpy(), misses)
        with self._lock:
            self.asked += len(array)
            self.hits += len(array) - missed
            chosen = self._observe(array) if self._given is None else None
        if chosen is not None:  # without the lock, since computing their vectors takes a while
            self._keep(chosen)
        return torch.from_numpy(misses[:missed]) if missed else None

    def _observe(self, ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Tensor | None:
        """Count ids. Returns the ids to keep from now on, if it is time to choose."""
        from ..kernels import id_index

        id_index.count_traffic(ids, self._counted, self._counts)
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
        from ..kernels import id_index

        size = _power_of_two(2 * max(1, len(ids)))
        keys, places = np.zeros(size, np.int64), np.full(size, id_index.EMPTY, np.int32)
        id_index.build_index(ids.numpy(), keys, places)
        self._ids = ids
        self._index = (keys, places, self._compute(ids).numpy())


def _power_of_two(at_least: int) -> int:
    return 1 << max(1, at_least - 1).bit_length()
