"""Vectors whose columns are split into parts, with a number for each part: it says which row of a table has the part.

Product quantization calls these numbers codes, clustered compositional embedding calls them pointers. Both find them by
k-means, which faiss does. `quantize` is how product quantization finds its codebooks, its codes and its rotation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...hints import install_hint
from ...kernels import Floats, Int64s
from .shared_rows import mean_of_sharers

_LEAST_WEIGHT = 1e-6  # of the heaviest direction: directions that do not count at all can't be mapped back
_POINTS_PER_CENTRE = 256  # as in faiss: more points do not move centres much
_ROUNDS, _FEWEST_ROUNDS = 25, 5
_MOST_DISTANCES = 2e10  # of all rounds together; more would take minutes, so that there are fewer rounds then
_MOST_SAMPLED = 65_536  # points that codebooks and rotation are found from
_TURNS, _ROUNDS_PER_TURN = 10, 2  # more of either lowered the error by less than 2 %


def part_sizes(embedding_dim: int, num_parts: int) -> list[int]:
    """How many columns each part has. They differ by one at most, and the larger parts come first."""
    if not 1 <= num_parts <= embedding_dim:
        raise ValueError(f"num_parts is {num_parts}; it must lie in 1 … {embedding_dim}, the number of columns")
    size, rest = divmod(embedding_dim, num_parts)
    return [size + (part < rest) for part in range(num_parts)]


def parts_of_columns(embedding_dim: int, num_parts: int) -> Tensor:
    """The part that each column belongs to: int64 [embedding_dim]."""
    sizes = torch.tensor(part_sizes(embedding_dim, num_parts))
    return torch.arange(num_parts).repeat_interleave(sizes, output_size=embedding_dim)


def look_up_parts(table: Tensor, rows: Tensor, parts: Tensor) -> Tensor:
    """Table [num_rows, dim], rows int64 [..., num_parts], the part of each column [dim] -> vectors [..., dim]."""
    places = rows[..., parts]  # [..., dim]
    return table.gather(0, places.reshape(-1, table.shape[1])).view(places.shape)


def metric_roots(metric: Tensor, parts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Coordinates in which all errors count the same: a matrix [dim, dim] that leads there, and one that leads back.

    An error e counts as ‖e @ metric‖². With the `parts` of columns given, columns of different parts do not mix: what
    the metric says of two parts together is left out. The coordinates have about the size of the rows themselves.
    """
    square = metric.double() @ metric.double().mT
    if parts is not None:
        square = square * (parts.unsqueeze(-1) == parts)
    values, directions = torch.linalg.eigh(square)
    values = values.clamp(min=_LEAST_WEIGHT * float(values[-1])) if values[-1] > 0 else torch.ones_like(values)
    roots = (values / values.mean()).sqrt()
    return (directions * roots) @ directions.mT, (directions / roots) @ directions.mT


def find_centres(
    points: Floats, count: int, *, weights: Floats | None, seed: int, start: Floats | None = None, rounds: int = _ROUNDS
) -> Floats:
    """K-means by faiss: points [n, dim] and how much each counts [n] -> centres [count, dim].

    The search begins at the centres `start`, or at points that are drawn from the seed.
    """
    if count >= len(points):  # each point is its own centre, and the others are not needed
        return np.concatenate([points, np.zeros((count - len(points), points.shape[1]), np.float32)])
    affordable = int(_MOST_DISTANCES / (min(len(points), count * _POINTS_PER_CENTRE) * count))
    found = faiss_module().Kmeans(
        points.shape[1],
        count,
        niter=min(rounds, max(_FEWEST_ROUNDS, affordable)),
        seed=seed % 2**31,
        min_points_per_centroid=1,
        max_points_per_centroid=_POINTS_PER_CENTRE,
    )
    found.train(np.ascontiguousarray(points), weights=weights, init_centroids=start)
    centres: Floats = found.centroids
    return centres


def nearest_centres(points: Floats, centres: Floats) -> Int64s:
    """The number of the centre that is nearest to each point [n]."""
    index = faiss_module().IndexFlatL2(points.shape[1])
    index.add(np.ascontiguousarray(centres))
    numbers: Int64s = index.search(np.ascontiguousarray(points), 1)[1][:, 0]
    return numbers


def as_points(rows: Tensor) -> Floats:
    """Rows as faiss takes them."""
    points: NDArray[np.float32] = np.ascontiguousarray(rows.detach().cpu().numpy(), dtype=np.float32)
    return points


def faiss_module() -> Any:
    """The package faiss, or how to install it."""
    try:
        import faiss
    except ImportError as missing:
        raise ImportError(f"k-means of a table's rows needs faiss: {install_hint('serve')}") from missing
    return faiss


def quantize(
    points: Floats, weights: Floats, sizes: Sequence[int], *, bits: int, rotated: bool, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Points [n, dim] around zero -> a rotation [dim, dim], codebooks [2^bits, dim] and codes, int64 [n, parts].

    Point · rotation is near the row that the codes find in the codebooks, whose columns are split by `sizes`. An error
    of point i counts weights[i]. Points without weight get codes, but have no influence. Without `rotated` the rotation
    is the identity.
    """
    sample = np.flatnonzero(weights > 0)
    if len(sample) > _MOST_SAMPLED:
        sample = np.sort(np.random.default_rng(seed % 2**63).choice(sample, _MOST_SAMPLED, replace=False))
    some, heavy = points[sample], weights[sample]
    books, turn = None, np.eye(points.shape[1], dtype=np.float32)
    if rotated:
        turn, books = _find_rotation(some, heavy, sizes, bits=bits, seed=seed)
    books = _find_books(some @ turn, heavy, sizes, count=2**bits, start=books, rounds=_ROUNDS, seed=seed)
    turned = points @ turn
    books = _means(turned, weights, _find_codes(turned, books, sizes), books, sizes)
    codes = _find_codes(turned, books, sizes)
    return torch.from_numpy(turn), torch.from_numpy(books), torch.from_numpy(codes)


def _find_rotation(
    points: Floats, weights: Floats, sizes: Sequence[int], *, bits: int, seed: int
) -> tuple[Floats, Floats]:
    """In turn: the best codebooks for a rotation, and the best rotation for what the codebooks give (OPQ)."""
    turn, books = _balanced_directions(points, weights, sizes, bits), None
    for _ in range(_TURNS):
        rounds = _ROUNDS if books is None else _ROUNDS_PER_TURN
        turned = points @ turn
        books = _find_books(turned, weights, sizes, count=2**bits, start=books, rounds=rounds, seed=seed)
        decoded = _decode(books, _find_codes(turned, books, sizes), sizes)
        left, _, right = np.linalg.svd((points * weights[:, None]).T @ decoded)
        turn = (left @ right).astype(np.float32)
    assert books is not None
    return turn, books


def _balanced_directions(points: Floats, weights: Floats, sizes: Sequence[int], bits: int) -> Floats:
    """The principal directions, shared out so that all parts are equally hard to code. It is a much better start.

    The error of a part is the product of its variances, to the power 1 / its size, times 2^(-2·bits / size). Its
    logarithm shall be the same for all: the direction with the next largest variance goes where it is lowest.
    """
    variances, directions = np.linalg.eigh((points * weights[:, None]).T.astype(np.float64) @ points)
    logarithms = np.log2(np.maximum(variances, 1e-12 * max(variances[-1], 1e-300)))
    logarithms -= logarithms.min()
    chosen: list[list[int]] = [[] for _ in sizes]
    sums = [-2.0 * bits] * len(sizes)
    for direction in reversed(range(len(variances))):
        open_parts = [part for part, size in enumerate(sizes) if len(chosen[part]) < size]
        part = min(open_parts, key=lambda part: sums[part] / sizes[part])
        chosen[part].append(direction)
        sums[part] += float(logarithms[direction])
    order = [direction for part in chosen for direction in part]
    return np.ascontiguousarray(directions[:, order], dtype=np.float32)


def _find_books(
    points: Floats,
    weights: Floats,
    sizes: Sequence[int],
    *,
    count: int,
    start: Floats | None,
    rounds: int,
    seed: int,
) -> Floats:
    """The codebooks of all parts side by side, [count, dim]."""
    starts: list[Floats | None] = [None] * len(sizes) if start is None else list(_split(start, sizes))
    equal = bool((weights == weights[:1]).all())
    books = [
        find_centres(own, count, weights=None if equal else weights, seed=seed + part, start=begin, rounds=rounds)
        for part, (own, begin) in enumerate(zip(_split(points, sizes), starts, strict=True))
    ]
    return np.concatenate(books, 1)


def _find_codes(points: Floats, books: Floats, sizes: Sequence[int]) -> Int64s:
    both = zip(_split(points, sizes), _split(books, sizes), strict=True)
    return np.stack([nearest_centres(own, book) for own, book in both], -1)


def _decode(books: Floats, codes: Int64s, sizes: Sequence[int]) -> Floats:
    return np.concatenate([book[codes[:, part]] for part, book in enumerate(_split(books, sizes))], 1)


def _means(points: Floats, weights: Floats, codes: Int64s, books: Floats, sizes: Sequence[int]) -> Floats:
    """The codebooks once more, as the means of all points and not of a sample. Rows that nobody uses stay."""
    result = []
    for part, (own, book) in enumerate(zip(_split(points, sizes), _split(books, sizes), strict=True)):
        numbers = torch.from_numpy(np.ascontiguousarray(codes[:, part]))
        means, totals = mean_of_sharers(numbers, torch.from_numpy(own), torch.from_numpy(weights), len(book))
        result.append(torch.where((totals > 0).unsqueeze(-1), means, torch.from_numpy(book)))
    means_of_all: Floats = torch.cat(result, -1).numpy()
    return means_of_all


def _split(columns: Floats, sizes: Sequence[int]) -> list[Floats]:
    """[n, dim] as one array for each part."""
    ends = np.cumsum(sizes)
    return [np.ascontiguousarray(columns[:, end - size : end]) for end, size in zip(ends, sizes, strict=True)]
