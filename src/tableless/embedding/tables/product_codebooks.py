"""How product quantization finds its codebooks, its codes and its rotation from the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ...kernels import Floats, Int64s
from .column_parts import find_centres, nearest_centres
from .shared_rows import mean_of_sharers

_MOST_SAMPLED = 65_536  # points that codebooks and rotation are found from
_TURNS, _ROUNDS_PER_TURN = 10, 2  # more of either lowered the error by less than 2 %
_ALL_ROUNDS = 25


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
    books = _find_books(some @ turn, heavy, sizes, count=2**bits, start=books, rounds=_ALL_ROUNDS, seed=seed)
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
        rounds = _ALL_ROUNDS if books is None else _ROUNDS_PER_TURN
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
