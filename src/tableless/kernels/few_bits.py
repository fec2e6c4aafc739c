"""Compiled loops from numbers of few bits to floats.

`floats_of_…` are for the weights of one layer, right before they are multiplied. `rows_of_…` are for the rows of a
table: codes of 8, 4 or 2 bits, with a float16 offset and step for each row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import Floats, Int64s
from .compiling import FAST_MATH, compiled, float_of_bits

CodeBytes = NDArray[np.uint8]
Halves = NDArray[np.int16]  # the bits of float16: numba does not know the type itself

_f32 = np.float32
_TWO_TO_112 = _f32(2.0**112)


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


@compiled(inline="always")
def float_of_half(half: np.int16) -> np.float32:
    """The float32 that a finite float16 stands for: the bits in their new places, and the exponent's other origin."""
    bits = np.int32(half)
    magnitude = float_of_bits(np.int32((bits & np.int32(0x7FFF)) << np.int32(13))) * _TWO_TO_112
    return -magnitude if bits < 0 else magnitude


@compiled()
def rows_of_bytes(ids: Int64s, codes: CodeBytes, ranges: Halves, out: Floats) -> None:
    """out [n, width] ← offset + step · code, with a code in each byte of codes [rows, width]."""
    for i in range(ids.size):
        own, row = codes[ids[i]], out[i]
        offset, step = float_of_half(ranges[ids[i], 0]), float_of_half(ranges[ids[i], 1])
        for j in range(row.size):
            row[j] = offset + step * _f32(own[j])


@compiled()
def rows_of_half_bytes(ids: Int64s, codes: CodeBytes, ranges: Halves, out: Floats) -> None:
    """The same with two codes of 4 bits in a byte, the lower bits first."""
    for i in range(ids.size):
        own, row = codes[ids[i]], out[i]
        offset, step = float_of_half(ranges[ids[i], 0]), float_of_half(ranges[ids[i], 1])
        pairs = row.size // 2
        for j in range(pairs):
            byte = np.int32(own[j])
            row[2 * j] = offset + step * _f32(byte & np.int32(15))
            row[2 * j + 1] = offset + step * _f32(byte >> np.int32(4))
        if row.size % 2:
            row[2 * pairs] = offset + step * _f32(np.int32(own[pairs]) & np.int32(15))


@compiled()
def rows_of_quarter_bytes(ids: Int64s, codes: CodeBytes, ranges: Halves, out: Floats) -> None:
    """The same with four codes of 2 bits in a byte. Each vector has four different numbers at most."""
    levels = np.empty(4, np.float32)
    for i in range(ids.size):
        own, row = codes[ids[i]], out[i]
        offset, step = float_of_half(ranges[ids[i], 0]), float_of_half(ranges[ids[i], 1])
        for code in range(4):
            levels[code] = offset + step * _f32(code)
        fours = row.size // 4
        for j in range(fours):
            byte = np.int32(own[j])
            row[4 * j] = levels[byte & np.int32(3)]
            row[4 * j + 1] = levels[(byte >> np.int32(2)) & np.int32(3)]
            row[4 * j + 2] = levels[(byte >> np.int32(4)) & np.int32(3)]
            row[4 * j + 3] = levels[byte >> np.int32(6)]
        for j in range(4 * fours, row.size):
            row[j] = levels[(np.int32(own[fours]) >> np.int32(2 * (j - 4 * fours))) & np.int32(3)]
