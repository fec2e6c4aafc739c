"""Finding among all known ids: the nearest to a vector, and the best items for a user.

Both search for the rows with the largest inner products with a vector: exactly, by one product, or through a faiss
index. Cosines are inner products of rows of length 1, and so are GMF's scores once the user's vector is weighted. An
MLP's scores are no inner products, so that no index helps there.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from ..embedding.ids import find
from ..embedding.scheme import EmbeddingScheme
from ..hints import install_hint
from ..kernels.idle_cores import on_idle_cores
from ..recommender.models import Recommender
from ..recommender.scoring import scheme_inputs
from .fast_embedding import FastEmbedding

if TYPE_CHECKING:
    import polars as pl

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
    @on_idle_cores()
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
            raise ImportError(f"index='faiss' needs faiss: {install_hint('serve')}") from missing
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


_BLOCK = 16_384  # items scored at once: an MLP's hidden layers for a million of them would not fit in memory


class KnownIds:
    """All there is to choose from on one side. Vectors are computed at the first question, in fp32, and kept."""

    def __init__(self, names: pl.Series, ids: Tensor, *, scheme: EmbeddingScheme, index: IndexKind) -> None:
        self.names = names  # [n] raw ids
        self.ids = ids  # int64 [n]; a closed scheme has a row for each, in this order
        self._scheme = scheme
        self._index = index
        self._lock = threading.RLock()
        self._vectors: Tensor | None = None
        self._directions: NearestRows | None = None
        self._sorted = torch.sort(ids).values

    def __len__(self) -> int:
        return len(self.ids)

    def has(self, ids: Tensor) -> Tensor:
        """Which ids are known: int64 [...] -> bool [...]."""
        return find(ids, self._sorted)[1]

    @property
    def vectors(self) -> Tensor:
        """Float32 [n, dim]."""
        with self._lock:
            if self._vectors is None:
                embed = FastEmbedding(self._scheme)  # one of its own: these ids must not count as asked for
                self._vectors = embed(scheme_inputs(self._scheme, self.ids.numpy()))
            return self._vectors

    def with_added(self, names: pl.Series, ids: Tensor, vectors: Tensor) -> KnownIds:
        """The same with further ids [n] behind the others, or new vectors [n, dim] for those that are here already."""
        before = self.vectors
        order = self.ids.argsort()
        position, is_here = find(ids, self.ids[order])
        changed = before.clone()
        changed[order[position[is_here]]] = vectors[is_here]
        new = ~is_here
        own = KnownIds(
            self.names.clone().append(names.filter(new.numpy())),
            torch.cat([self.ids, ids[new]]),
            scheme=self._scheme,
            index=self._index,
        )
        own._vectors = torch.cat([changed, vectors[new]])
        return own

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


class Ranking:
    """Scores a user with every item, or with those that an index finds.

    GMF's score is an inner product, so that faiss can find the highest. An MLP always scores every item.
    """

    def __init__(self, model: Recommender, items: KnownIds, *, index: IndexKind) -> None:
        self._model = model
        self._items = items
        self._by_index = index == "faiss" and model.scores_are_products
        self._lock = threading.Lock()
        self._prepared: Tensor | None = None
        self._index: FaissRows | None = None

    @torch.inference_mode()
    @on_idle_cores()
    def best(
        self, person: Tensor, count: int, *, without: Tensor, exact: bool | None = None
    ) -> tuple[list[float], list[int]]:
        """A user's vector [1, dim] -> the highest scores and the rows of their items, other than those `without`."""
        if exact is False and not self._by_index:
            if self._model.scores_are_products:
                raise ValueError("exact=False needs a model that was loaded with index='faiss'")
            raise ValueError(
                "the scores of this model are no inner products, which an index could find; they are always exact"
            )
        prepared, user = self.prepare(), self._model.prepare_users(person)
        count = max(0, min(count, len(prepared) - len(without)))
        if self._by_index and not exact:
            assert self._index is not None
            _, rows = self._index.search(user[0], count + len(without))
            rows = rows[~torch.isin(rows, without)]
            if len(rows) >= count:  # else the index has found too few
                scores, order = self._model.score_all(user, prepared[rows])[0].topk(count)
                return scores.tolist(), rows[order].tolist()
        blocks = (prepared[start : start + _BLOCK] for start in range(0, len(prepared), _BLOCK))
        scores = torch.cat([self._model.score_all(user, block)[0] for block in blocks])
        scores[without] = -torch.inf
        scores, rows = scores.topk(count)
        return scores.tolist(), rows.tolist()

    def prepare(self) -> Tensor:
        """The item's part of every score, [items, …]: computed once."""
        vectors = self._items.vectors
        with self._lock, torch.inference_mode():
            if self._prepared is None:
                self._prepared = self._model.prepare_items(self._model.with_features(vectors, self._items.ids))
                self._index = FaissRows(self._prepared) if self._by_index else None
            return self._prepared


@torch.inference_mode()
def on_a_plane(vectors: Tensor) -> Tensor:
    """[n, dim] -> [n, 2]: the first two principal components, each with its largest weight positive."""
    centred = vectors - vectors.mean(dim=0)
    _, directions = torch.linalg.eigh(centred.T @ centred)  # by ascending variance
    plane = directions[:, -2:].flip(-1)  # [dim, 2]
    largest = plane.gather(0, plane.abs().argmax(dim=0, keepdim=True))
    return pad(centred @ (plane * largest.sign()), (0, 2 - plane.shape[-1]))  # vectors of one number lie on a line
