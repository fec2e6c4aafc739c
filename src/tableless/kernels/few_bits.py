"""Compiled loops from stored integers to floats: the weights of one layer, right before they are multiplied."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import Floats
from .compiling import FAST_MATH, compiled

_f32 = np.float32


@compiled(fastmath=FAST_MATH)
def floats_of_bytes(integers: NDArray[np.int8], scale: Floats, out: Floats) -> None:
    """Integers [rows, columns] times the scale of their row; what `out` has beyond them becomes zero."""
    rows, columns = integers.shape
    for row in range(rows):
        numbers, floats, factor = integers[row], out[row], scale[row]
        for i in range(columns):
            floats[i] = _f32(numbers[i]) * factor
        for i in range(columns, floats.size):
            floats[i] = _f32(0)
    for row in range(rows, out.shape[0]):
        for i in range(out.shape[1]):
            out[row, i] = _f32(0)


@compiled(fastmath=FAST_MATH)
def floats_of_bits(packed: NDArray[np.uint8], bits: int, columns: int, scale: Floats, out: Floats) -> None:
    """The same for integers of fewer than eight bits, which lie one after the other (`rounding.pack_bits`)."""
    rows, last = packed.shape[0], packed.shape[1] - 1
    mask, most = np.int32((1 << bits) - 1), np.int32((1 << (bits - 1)) - 1)
    for row in range(rows):
        numbers, floats, factor = packed[row], out[row], scale[row]
        for i in range(columns):
            begin = i * bits
            first = begin >> 3
            both = np.int32(numbers[first]) | (np.int32(numbers[min(first + 1, last)]) << np.int32(8))
            floats[i] = _f32(((both >> np.int32(begin & 7)) & mask) - most) * factor
        for i in range(columns, floats.size):
            floats[i] = _f32(0)
    for row in range(rows, out.shape[0]):
        for i in range(out.shape[1]):
            out[row, i] = _f32(0)
