"""The compiled loops of the serving path. Importing this module imports numba, so do it where a kernel is called."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..embedding.compiling import FAST_MATH, bits_of_float, compiled, float_of_bits
from ..embedding.kernels import exponential, rough_exponential

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Floats = NDArray[np.float32]
Bytes = NDArray[np.int8]
Sums = NDArray[np.int32] | NDArray[np.float32]
_f32 = np.float32

EMPTY = -1


@compiled(fastmath=FAST_MATH)
def add_bias_and_mish(rows: Floats, bias: Floats) -> None:
    """rows [n, width] ← mish(rows + bias), in place."""
    for row in range(rows.shape[0]):
        xs = rows[row]
        for i in range(xs.size):
            x = xs[i] + bias[i]
            xs[i] = _mish(x, exponential(x))


@compiled(fastmath=FAST_MATH)
def mish_of_sums(sums: Sums, row_scale: Floats, scale: Floats, shift: Floats, bias: Floats, out: Floats) -> None:
    """out [n, width] ← mish(row_scale · (scale · sums + shift) + bias)."""
    for row in range(sums.shape[0]):
        inputs, outputs, factor = sums[row], out[row], row_scale[row]
        for i in range(inputs.size):
            x = (_f32(inputs[i]) * scale[i] + shift[i]) * factor + bias[i]
            outputs[i] = _mish(x, rough_exponential(x))


@compiled(fastmath=FAST_MATH)
def mish_of_sums_as_bytes(
    sums: Sums,
    row_scale: Floats,
    scale: Floats,
    shift: Floats,
    bias: Floats,
    floor: float,
    inverse_channel: Floats,
    out: Bytes,
    out_row_scale: Floats,
) -> None:
    """The same as bytes, each row with the finest scale that holds it; `out_row_scale` may be `row_scale` itself."""
    xs = np.empty(sums.shape[1], np.float32)
    least = _f32(floor)
    for row in range(sums.shape[0]):
        inputs, outputs, factor = sums[row], out[row], row_scale[row]
        largest = np.int32(0)  # positive numbers are in the order of their bits, and a maximum of floats is slow
        for i in range(xs.size):
            x = (_f32(inputs[i]) * scale[i] + shift[i]) * factor + bias[i]
            y = max((_mish(x, rough_exponential(x)) - least) * inverse_channel[i], _f32(1e-10))
            xs[i] = y
            largest = max(largest, bits_of_float(y))
        most = float_of_bits(np.int32(largest))
        out_row_scale[row] = most / _f32(255)
        inverse = _f32(255) / most
        for i in range(xs.size):  # truncation after adding ½ rounds what is positive
            outputs[i] = np.int8(np.int32(xs[i] * inverse + _f32(0.5)) - np.int32(128))


@compiled(inline="always", fastmath=FAST_MATH)
def _mish(x: np.float32, e: np.float32) -> np.float32:
    """Of x, given e = eˣ."""
    n = e * (e + _f32(2))
    return x * n / (n + _f32(2))


@compiled(inline="always")
def slot_of(id_: np.int64, mask: int) -> np.int64:
    """Where the search for an id begins: its bits well mixed, so that ids in a row do not queue up."""
    folded = np.uint64(id_) ^ (np.uint64(id_) >> np.uint64(32))  # a product moves bits up only
    mixed = folded * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))


@compiled()
def build_index(ids: Int64s, keys: Int64s, places: Int32s) -> None:
    """Enter distinct ids in an open-addressing index whose size is a power of two and more than len(ids)."""
    mask = keys.size - 1
    for place in range(ids.size):
        slot = slot_of(ids[place], mask)
        while places[slot] != EMPTY:
            slot = (slot + 1) & mask
        keys[slot] = ids[place]
        places[slot] = place


@compiled()
def distinct(ids: Int64s, firsts: Int64s, numbers: Int64s) -> int:
    """Each id's number in the order of first appearance, and where each number first appears. Returns how many."""
    size = 2
    while size < 2 * ids.size:
        size *= 2
    places = np.full(size, EMPTY, np.int32)
    count = 0
    for i in range(ids.size):
        slot = slot_of(ids[i], size - 1)
        while places[slot] != EMPTY and ids[firsts[places[slot]]] != ids[i]:
            slot = (slot + 1) & (size - 1)
        if places[slot] == EMPTY:
            places[slot] = count
            firsts[count] = i
            count += 1
        numbers[i] = places[slot]
    return count


@compiled()
def look_up(ids: Int64s, keys: Int64s, places: Int32s, vectors: Floats, out: Floats, misses: Int64s) -> int:
    """Copy the vectors of indexed ids to `out`; the positions of the others go to `misses`. Returns how many."""
    mask = keys.size - 1
    missed = 0
    for i in range(ids.size):
        slot = slot_of(ids[i], mask)
        while places[slot] != EMPTY and keys[slot] != ids[i]:
            slot = (slot + 1) & mask
        place = places[slot]
        if place == EMPTY:
            misses[missed] = i
            missed += 1
        else:
            for j in range(out.shape[1]):
                out[i, j] = vectors[place, j]
    return missed


@compiled()
def count_traffic(ids: Int64s, keys: Int64s, counts: Int32s) -> None:
    """Count ids in a table of fixed size. Where it is full, the rarest id nearby fades and at last makes room."""
    mask = keys.size - 1
    for i in range(ids.size):
        first = slot_of(ids[i], mask)
        rarest = first
        for step in range(8):
            slot = (first + step) & mask
            if counts[slot] > 0 and keys[slot] == ids[i]:
                rarest = slot
                break
            if counts[slot] < counts[rarest]:
                rarest = slot
        if keys[rarest] == ids[i] or counts[rarest] == 0:
            keys[rarest] = ids[i]
            counts[rarest] += 1
        else:
            counts[rarest] -= 1
