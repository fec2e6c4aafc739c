"""Trained vectors as rows in memory or in a mapped file with the raw id of each, and what is lost by near ones.

All rows are visited in blocks, so that a mapped file may be larger than memory. What is lost when near vectors take the
place of others is measured in angles, inner products and nearest neighbours (`measure_losses`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 1 << 21
"""Numbers that are read at once."""

NEIGHBOURS = 10
_QUERIES, _PAIRS = 500, 20_000
_FEWEST_ROWS = 1024  # of a block whose neighbours are looked for

Tell = Callable[[str, int, int | None], None]
"""Is told what is being done, how much of it is done, and how much there is (None if that is not known)."""


@dataclass(frozen=True)
class VectorRows:
    """Vectors and their raw ids.

    Attributes:
        rows: Float32 [n, dim]; it may be a mapped file.
        ids: A column of n raw ids, of any kind that `tableless.to_ids` takes.
        num_bytes: What the vectors took where they came from. Numbers that were text count four bytes.
    """

    rows: NDArray[np.float32]
    ids: Any
    num_bytes: int


def block_rows(dim: int) -> int:
    """How many rows are read at once."""
    return max(1, BLOCK // max(1, dim))


def float_rows(array: NDArray[Any], name: str, tell: Tell) -> NDArray[np.float32]:
    """An array [n, dim] of any kind of numbers as float32 rows, without a copy if that is what it is."""
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise ValueError(
            f"{name} has shape {array.shape} and type {array.dtype}; vectors are numbers in two dimensions: a row for "
            "each id"
        )
    if array.dtype == np.float32 and array.flags.c_contiguous:
        return array
    step = block_rows(array.shape[1])
    return mapped(
        (np.asarray(array[start : start + step], np.float32) for start in range(0, len(array), step)),
        array.shape[1],
        tell=tell,
        total=len(array),
    )


def mapped(
    blocks: Iterable[NDArray[np.float32]], dim: int, *, tell: Tell, total: int | None = None
) -> NDArray[np.float32]:
    """Blocks [m, dim] one after the other in a temporary file, which is mapped into memory and needs no name."""
    done = 0
    with tempfile.TemporaryFile() as file:
        for block in blocks:
            file.write(np.ascontiguousarray(block, np.float32).data)
            done += len(block)
            tell("reading", done, total)
        file.flush()
        if not done:
            return np.empty((0, dim), np.float32)
        return np.memmap(file, np.float32, "r+", shape=(done, dim))


@dataclass(frozen=True)
class VectorLosses:
    """How near decoded vectors are to the ones they stand for.

    Attributes:
        mean_cosine: The cosine of a vector and its decoded form, averaged over all vectors.
        inner_product_error: Of the inner products of random pairs: the root of the mean squared error, as a share of
            the root of their mean square. Both vectors of a pair are decoded ones.
        recall_at_10: How many of the 10 nearest neighbours of a vector, by cosine and exact search, are still among the
            10 nearest if all vectors are decoded ones, the query too. The mean over a sample of queries. A vector is no
            neighbour of itself.
        recall_at_10_exact_queries: The same if the query is the vector itself and only those that are searched are
            decoded, as it is with queries from outside.
    """

    mean_cosine: float
    inner_product_error: float
    recall_at_10: float
    recall_at_10_exact_queries: float


def measure_losses(
    rows: Tensor, decode: Callable[[slice], Tensor], *, seed: int = 0, on_rows: Callable[[int, int], None] | None = None
) -> VectorLosses:
    """Compare vectors [n, dim] with what `decode` gives in the place of `rows[part]`."""
    random = torch.Generator().manual_seed(seed)
    num_rows = len(rows)
    chosen = torch.randperm(num_rows, generator=random)[:_QUERIES]
    first = torch.randint(num_rows, (_PAIRS,), generator=random)
    second = (first + torch.randint(1, num_rows, (_PAIRS,), generator=random)) % num_rows  # never the same one
    exact, near = _Gathered(torch.cat([chosen, first, second])), _Gathered(torch.cat([chosen, first, second]))
    for part in _blocks(rows):  # a vector of a sample may be anywhere, so that all of them are collected first
        exact.take(part.start, rows[part].float())
        near.take(part.start, decode(part))
    queries, coded = exact.vectors[: len(chosen)], near.vectors[: len(chosen)]
    nearest = [_Nearest(queries, chosen), _Nearest(coded, chosen), _Nearest(queries, chosen)]
    cosines = 0.0
    for part in _blocks(rows):
        own, decoded = F.normalize(rows[part].float(), dim=-1), F.normalize(decode(part), dim=-1)
        cosines += float((own * decoded).sum(-1).double().sum())
        for found, block in zip(nearest, (own, decoded, decoded), strict=True):
            found.take(part.start, block)
        if on_rows is not None:
            on_rows(min(part.stop, num_rows), num_rows)
    wanted = nearest[0].places
    return VectorLosses(
        cosines / num_rows,
        _relative_error(exact.products(len(chosen)), near.products(len(chosen))),
        _recall(wanted, nearest[1].places),
        _recall(wanted, nearest[2].places),
    )


class _Gathered:
    """The vectors at some places, collected from blocks."""

    def __init__(self, places: Tensor) -> None:
        self.places, self.order = places.sort()
        self.vectors = torch.empty(0)

    def take(self, start: int, block: Tensor) -> None:
        if not self.vectors.numel():
            self.vectors = block.new_empty(len(self.places), block.shape[-1])
        low, high = torch.searchsorted(self.places, torch.tensor([start, start + len(block)])).tolist()
        self.vectors[self.order[low:high]] = block[self.places[low:high] - start]

    def products(self, begin: int) -> Tensor:
        """The inner products of pairs, which stand after `begin` other vectors: all first ones, all second ones."""
        first, second = self.vectors[begin:].double().chunk(2)
        return (first * second).sum(-1)


class _Nearest:
    """The nearest neighbours of queries [n, dim] by cosine, among blocks of vectors of length one."""

    def __init__(self, queries: Tensor, own: Tensor) -> None:
        self.queries, self.own = F.normalize(queries, dim=-1), own
        self.scores, self.places = torch.empty(len(own), 0), torch.empty(len(own), 0, dtype=torch.int64)

    def take(self, start: int, block: Tensor) -> None:
        scores = self.queries @ block.T
        here = (self.own >= start) & (self.own < start + len(block))
        scores[here, self.own[here] - start] = -torch.inf
        best, places = scores.topk(min(NEIGHBOURS, len(block)))
        best, places = torch.cat([self.scores, best], 1), torch.cat([self.places, places + start], 1)
        self.scores, kept = best.topk(min(NEIGHBOURS, best.shape[1]))
        self.places = places.gather(1, kept)


def _blocks(rows: Tensor) -> Iterator[slice]:
    step = max(_FEWEST_ROWS, block_rows(rows.shape[-1]))
    for start in range(0, len(rows), step):
        yield slice(start, start + step)


def _relative_error(exact: Tensor, near: Tensor) -> float:
    size = float(exact.square().mean())
    return (float((near - exact).square().mean()) / size) ** 0.5 if size else 0.0


def _recall(wanted: Tensor, found: Tensor) -> float:
    return float((wanted.unsqueeze(-1) == found.unsqueeze(-2)).any(-1).double().mean())
