"""Compiled loops for rows in few bits: codes of 8, 4 or 2 bits, with a float16 offset and step for each row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import Floats, Int64s
from .compiling import compiled, float_of_bits

CodeBytes = NDArray[np.uint8]
Halves = NDArray[np.int16]  # the bits of float16: numba does not know the type itself

_f32 = np.float32
_TWO_TO_112 = _f32(2.0**112)


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
def rows_of_parts_of_bytes(ids: Int64s, codes: CodeBytes, ranges: Halves, bits: int, out: Floats) -> None:
    """The same with several codes in a byte: 2 of 4 bits or 4 of 2 bits, the lowest bits first."""
    in_byte = 8 // bits
    mask = (1 << bits) - 1
    for i in range(ids.size):
        own, row = codes[ids[i]], out[i]
        offset, step = float_of_half(ranges[ids[i], 0]), float_of_half(ranges[ids[i], 1])
        whole = row.size // in_byte
        for j in range(whole):
            byte = np.int32(own[j])
            for k in range(in_byte):
                row[j * in_byte + k] = offset + step * _f32((byte >> (k * bits)) & mask)
        for j in range(whole * in_byte, row.size):
            row[j] = offset + step * _f32((np.int32(own[whole]) >> ((j - whole * in_byte) * bits)) & mask)
