"""Trellis codes: a vector as a few bits.

A vector is a *gain*, its length in steps, times a direction. Each dimension of the direction has some of the bits, most
where the vectors differ most. The bits of all dimensions stand in a row that is bent to a circle. A dimension reads a
*window*: its own bits and those just before them, `length` bits in all. A list of *levels*, one for each window, says
which number that is. So dimensions share bits, and the best code of a vector is found by dynamic programming
(`kernels/trellis_search.py`). At 2 bits a dimension this leaves .085 of a normal variance; the best levels for each
dimension by itself leave .118, and .063 is the least that any code can leave.

The bits of a row, from the lowest: the gain, check bits, the direction. Row r begins at bit r · `num_bits`.
The window of a dimension ends with its own bits: if these are the bits a … b - 1 of the direction, its window has the
bits b - `length` … b - 1, the first of them lowest, where bit -1 is the last of the direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ..kernels import Doubles

Integers = NDArray[np.int64]
Windows = NDArray[np.uint8]

MOST_BITS = 6
"""Bits of one dimension. More would improve on float16."""
_LEFT = [1.0, 0.31, 0.085, 0.0235, 0.0063, 0.0017, 0.00045]
"""The share of a normal variance that is left after 0 to 6 bits, as measured with windows of 8 bits."""
_FEWEST_ROWS = 256  # for which another thread is woken
_ROUNDS = 10  # how often the levels are fitted


@dataclass
class TrellisCode:
    """How vectors of `dims` numbers are coded; all parts together make a vector out of bits."""

    bits: Integers  # [dims]
    mean: Doubles  # [dims] of directions
    scale: Doubles  # [dims]
    levels: Doubles  # [2^length]
    gains: Doubles  # [2^gain_bits], rising

    @property
    def length(self) -> int:
        """Bits of a window."""
        return int(math.log2(len(self.levels)))

    def windows(self, directions: Doubles) -> Windows:
        """The best window of each dimension that has bits: [n, dims] -> [n, dims with bits]."""
        from ..kernels.resources import in_parallel

        out = np.empty((len(directions), int((self.bits > 0).sum())), np.uint8)

        def search(start: int, stop: int) -> None:
            self._search(directions[start:stop], out[start:stop])

        in_parallel(search, len(directions), fewest=_FEWEST_ROWS)
        return out

    def _search(self, directions: Doubles, out: Windows) -> None:
        from ..kernels.trellis_search import best_windows

        own = self.bits > 0
        rows = np.ascontiguousarray((directions - self.mean)[:, own], np.float32)
        best_windows(rows, self.scale[own].astype(np.float32), self.bits[own], self.levels.astype(np.float32), out)

    def gains_of(self, vectors: Doubles, windows: Windows) -> Doubles:
        """The best factor [n] of the directions that windows [n, dims with bits] stand for."""
        from ..kernels.trellis import best_gains

        out = np.empty(len(vectors))
        best_gains(np.ascontiguousarray(vectors), windows, self.bits, self.levels, self.scale, self.mean, out)
        return out

    def encode(self, vectors: Doubles) -> tuple[Integers, Windows]:
        """The gain [n] and the windows [n, dims with bits] of vectors [n, dims], on the thread of the caller."""
        windows = np.empty((len(vectors), int((self.bits > 0).sum())), np.uint8)
        self._search(vectors / _lengths(vectors)[:, None], windows)
        middles = (self.gains[1:] + self.gains[:-1]) / 2
        return np.searchsorted(middles, self.gains_of(vectors, windows)), windows


def fit_code(
    sample: Doubles, *, num_bits: int, gain_bits: int, length: int, generator: np.random.Generator
) -> TrellisCode:
    """The code for vectors like those of a sample [n, dims], with `num_bits` bits for a direction.

    The windows have `length` bits.
    """
    directions = sample / _lengths(sample)[:, None]
    variance = directions.var(0)
    code = TrellisCode(
        bits=share_bits(variance, num_bits, most=min(MOST_BITS, length)),
        mean=directions.mean(0),
        scale=np.zeros(len(variance)),
        levels=starting_levels(length, generator),
        gains=np.ones(1),
    )
    own = code.bits > 0
    code.scale[own] = np.sqrt(variance[own])
    values = (directions - code.mean)[:, own]
    for _ in range(_ROUNDS):
        windows = code.windows(directions)
        scale = code.scale[own]
        wanted = np.bincount(windows.ravel(), (values * scale).ravel(), minlength=len(code.levels))
        power = np.bincount(windows.ravel(), np.broadcast_to(scale**2, values.shape).ravel(), len(code.levels))
        code.levels = np.where(power > 0, wanted / np.where(power > 0, power, 1), code.levels)
        levels = code.levels[windows]
        squares = (levels**2).sum(0)
        code.scale[own] = np.where(squares > 0, (levels * values).sum(0) / np.where(squares > 0, squares, 1), scale)
    gains = code.gains_of(sample, code.windows(directions))
    code.gains = np.exp(levels_of(np.log(gains), 2**gain_bits))
    return code


def share_bits(variance: Doubles, num_bits: int, *, most: int = MOST_BITS) -> Integers:
    """How many bits each dimension gets, at `most` so many: the next bit goes where it explains most."""
    bits = np.zeros(len(variance), np.int64)
    explains = np.array([*-np.diff(_LEFT[: most + 1]), -1.0])
    for _ in range(num_bits):
        bits[int(np.argmax((variance + 1e-30) * explains[bits]))] += 1
    return bits


def expected_loss(variance: Doubles, num_bits: int, *, most: int = MOST_BITS) -> float:
    """The variance that is left if dimensions with these variances share the bits."""
    return float(variance @ np.array(_LEFT)[share_bits(variance, num_bits, most=most)])


def starting_levels(length: int, generator: np.random.Generator) -> Doubles:
    """Normal quantiles in a random order: windows that share bits must have unlike levels."""
    normal = NormalDist()
    return generator.permutation([normal.inv_cdf((i + 0.5) / 2**length) for i in range(2**length)])


def levels_of(values: Doubles, count: int) -> Doubles:
    """The `count` numbers, rising, that are nearest to values on average (the algorithm of Lloyd and Max)."""
    values = np.sort(values)
    sums = np.concatenate([[0.0], values.cumsum()])
    levels = np.quantile(values, (np.arange(count) + 0.5) / count)
    for _ in range(50):
        ends = np.concatenate([[0], np.searchsorted(values, (levels[1:] + levels[:-1]) / 2), [len(values)]])
        sizes = np.diff(ends)
        levels = np.where(sizes > 0, np.diff(sums[ends]) / np.maximum(sizes, 1), levels)
    return levels


def write_row(
    words: NDArray[np.uint64],
    begin: Integers,
    fields: Sequence[tuple[int, Integers]],
    windows: Windows,
    code: TrellisCode,
) -> None:
    """Write rows that begin at the bits `begin` [n]: some fields (their bits, values [n]), then the direction.

    A dimension adds the uppermost bits of its window.
    """
    from ..kernels import trellis as loops

    values, widths = np.empty((len(begin), len(fields)), np.int64), np.array([width for width, _ in fields], np.int64)
    for number, (_, column) in enumerate(fields):
        values[:, number] = column
    loops.write_rows(words, begin, values, widths, windows, code.bits[code.bits > 0], code.length)


def _lengths(vectors: Doubles) -> Doubles:
    return np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
