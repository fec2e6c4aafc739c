"""The rows with the largest inner products with a vector: exactly, by one product, or through a faiss index.

Cosines are inner products of rows of length 1, and so are GMF's scores once the user's vector is weighted: both are
found this way. An MLP's scores are no inner products, and no index helps there.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import torch
from torch import Tensor

IndexKind = Literal["exact", "faiss"]

FEWEST_ROWS_FOR_GRAPH = 50_000
"""Below this faiss compares with every row, which takes a millisecond and misses nothing."""
_LINKS = 32  # of a row in the graph; with these and `_BREADTH`, 10 of 100,000 random rows are found to 99.5 %
_BREADTH = 128


class NearestRows(Protocol):
    """Rows that can be searched, also from several threads at once."""

    def search(self, query: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """A vector [dim] -> the largest inner products [≤ count], in descending order, and their rows."""


class ExactRows:
    """Compares with every row."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows

    @torch.inference_mode()
    def search(self, query: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """A vector [dim] -> the largest inner products [≤ count], in descending order, and their rows."""
        products, rows = (self._rows @ query).topk(min(count, len(self._rows)))
        return products, rows


class FaissRows:
    """Many rows are linked to a graph (HNSW) that leads to the nearest: quick to search, though it may miss some.

    Linking takes its time, some 10 to 20 seconds of one core for 100,000 rows, and 256 bytes a row.
    """

    def __init__(self, rows: Tensor) -> None:
        try:
            import faiss
        except ImportError as missing:
            raise ImportError("index='faiss' needs faiss: pip install 'tableless[serve]'") from missing
        self._faiss: Any = faiss
        self._count, dim = rows.shape
        self._has_graph = self._count >= FEWEST_ROWS_FOR_GRAPH
        self._index: Any = (
            faiss.IndexHNSWFlat(dim, _LINKS, faiss.METRIC_INNER_PRODUCT) if self._has_graph else faiss.IndexFlatIP(dim)
        )
        self._index.add(rows.numpy())

    def search(self, query: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """A vector [dim] -> the largest inner products found [≤ count], in descending order, and their rows."""
        breadth = self._faiss.SearchParametersHNSW(efSearch=max(_BREADTH, 2 * count)) if self._has_graph else None
        query_row = query.reshape(1, -1).numpy()
        products, rows = self._index.search(query_row, min(count, self._count), params=breadth)
        found = rows[0] >= 0  # places that were not filled hold -1
        return torch.from_numpy(products[0][found]), torch.from_numpy(rows[0][found])


def nearest_rows(kind: IndexKind, rows: Tensor) -> NearestRows:
    """Rows [n, dim], ready to be searched in the way named."""
    return FaissRows(rows) if kind == "faiss" else ExactRows(rows)
