"""The ids that a run lists, with their vectors."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn.functional import normalize

from ..embedding.scheme import EmbeddingScheme
from .inference import FastEmbedding
from .neighbors import IndexKind, NearestRows, nearest_rows

if TYPE_CHECKING:
    import polars as pl


class KnownIds:
    """All there is to choose from on one side. Vectors are computed at the first question, in fp32, and kept."""

    def __init__(
        self, names: pl.Series, *, ids: Tensor, inputs: Tensor, scheme: EmbeddingScheme, index: IndexKind
    ) -> None:
        self.names = names  # [n] raw ids
        self.ids = ids  # int64 [n]
        self.inputs = inputs  # int64 [n]: what the scheme is asked for each
        self._scheme = scheme
        self._index = index
        self._lock = threading.RLock()
        self._vectors: Tensor | None = None
        self._directions: NearestRows | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def vectors(self) -> Tensor:
        """Float32 [n, dim]."""
        with self._lock:
            if self._vectors is None:
                self._vectors = FastEmbedding(self._scheme)(self.inputs)  # one of its own: this is no traffic
            return self._vectors

    def directions(self) -> NearestRows:
        """The vectors with a length of 1, ready to be searched: inner products are cosines."""
        with self._lock:
            if self._directions is None:
                self._directions = nearest_rows(self._index, normalize(self.vectors, dim=-1))
            return self._directions

    def nearest(self, vector: Tensor, count: int, *, without: int) -> tuple[list[float], list[int]]:
        """The highest cosines with a vector [dim] and their rows; the id `without` is not among them."""
        cosines, rows = self.directions().search(normalize(vector, dim=-1), count + 1)
        others = (self.ids[rows] != without).nonzero().squeeze(-1)[:count]
        return cosines[others].clamp(-1, 1).tolist(), rows[others].tolist()
