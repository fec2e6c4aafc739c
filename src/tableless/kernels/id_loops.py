"""Compiled loops over ids: their buckets and codes, as docs/encoding-spec.md says, and an index that finds ids."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import Floats, Int32s, Int64s
from .compiling import compiled

UInt32s = NDArray[np.uint32]


@compiled()
def buckets(ids: Int64s, coefficients: Int64s, num_buckets: int, out: Int64s) -> None:
    """Fill `out` [len(ids), num_hashes] with the buckets of `ids`."""
    high, low, offset, prime = _columns(coefficients)
    inverse_prime, inverse_buckets, size = 1.0 / prime, 1.0 / num_buckets, np.int32(num_buckets)
    for row in range(len(ids)):
        upper, lower = _digits(ids[row])
        for i in range(len(prime)):
            total = _total(high[i], upper, low[i], lower, offset[i])
            out[row, i] = _bucket(total, prime[i], inverse_prime[i], size, inverse_buckets)


@compiled()
def uniform_codes(ids: Int64s, coefficients: Int64s, num_buckets: int, out: Floats) -> None:
    """Fill `out` [len(ids), num_hashes] with the uniform codes of `ids`, in one pass that never stores a bucket."""
    high, low, offset, prime = _columns(coefficients)
    inverse_prime, inverse_buckets, size = 1.0 / prime, 1.0 / num_buckets, np.int32(num_buckets)
    step = np.float32(2.0 / (num_buckets - 1))
    for row in range(len(ids)):
        upper, lower = _digits(ids[row])
        for i in range(len(prime)):
            total = _total(high[i], upper, low[i], lower, offset[i])
            bucket = _bucket(total, prime[i], inverse_prime[i], size, inverse_buckets)
            out[row, i] = np.float32(bucket) * step - np.float32(1.0)


@compiled()
def uniform_codes_as_bytes(ids: Int64s, coefficients: Int64s, num_buckets: int, out: NDArray[np.int8]) -> None:
    """Fill `out` [len(ids), num_hashes] with the uniform codes of `ids` in steps of 1/127."""
    high, low, offset, prime = _columns(coefficients)
    inverse_prime, inverse_buckets, size = 1.0 / prime, 1.0 / num_buckets, np.int32(num_buckets)
    step = np.float32(254.0 / (num_buckets - 1))
    for row in range(len(ids)):
        upper, lower = _digits(ids[row])
        for i in range(len(prime)):
            total = _total(high[i], upper, low[i], lower, offset[i])
            bucket = _bucket(total, prime[i], inverse_prime[i], size, inverse_buckets)
            out[row, i] = np.int8(np.int32(np.float32(bucket) * step + np.float32(0.5)) - np.int32(127))


@compiled(inline="always")
def _digits(id_: np.int64) -> tuple[np.uint64, np.uint64]:
    return np.uint64(id_) >> np.uint64(32), np.uint64(id_) & np.uint64(0xFFFFFFFF)


@compiled(inline="always")
def _total(high: np.uint32, upper: np.uint64, low: np.uint32, lower: np.uint64, offset: np.uint32) -> np.int64:
    """Below 2^63. The masks show the compiler that all factors have 32 bits: it multiplies those much faster."""
    upper, lower = upper & np.uint64(0xFFFFFFFF), lower & np.uint64(0xFFFFFFFF)
    return np.int64(np.uint64(high) * upper + np.uint64(low) * lower + np.uint64(offset))


@compiled(inline="always")
def _bucket(
    total: np.int64, prime: np.int32, inverse_prime: float, num_buckets: np.int32, inverse_buckets: float
) -> np.int32:
    """`total % prime % num_buckets` without an integer division, which is ten times slower and is not vectorised.

    The inverses are 1/prime and 1/num_buckets. A float64 quotient below 2^50 is off by at most one.
    """
    rest = _remainder(total, np.int64(np.float64(total) * inverse_prime), prime)
    return _remainder(rest, np.int32(np.float64(rest) * inverse_buckets), num_buckets)


@compiled(inline="always")
def _remainder(dividend: np.int64 | np.int32, quotient: np.int64 | np.int32, divisor: np.int32) -> np.int32:
    """`dividend % divisor`, given a quotient that is off by at most one, and a divisor of at most 2^30.

    The rest lies between -divisor and twice the divisor. So its low 32 bits are enough, and only they are computed.
    """
    rest = np.int32(dividend - quotient * divisor)
    rest = np.int32(rest + divisor) if rest < 0 else rest
    return np.int32(rest - divisor) if rest >= divisor else rest


@compiled()
def _columns(coefficients: Int64s) -> tuple[UInt32s, UInt32s, UInt32s, NDArray[np.int32]]:
    """Each coefficient's values (below 2^30) side by side in memory, where a vector can be loaded at once."""
    columns = coefficients.T
    high, low, offset = columns[0].astype(np.uint32), columns[1].astype(np.uint32), columns[2].astype(np.uint32)
    return high, low, offset, columns[3].astype(np.int32)


EMPTY = -1


@compiled(inline="always")
def slot_of(id_: np.int64, mask: int) -> np.int64:
    """Where the search for an id begins. Its bits are mixed, so that consecutive ids do not crowd in one place."""
    folded = np.uint64(id_) ^ (np.uint64(id_) >> np.uint64(32))  # a product moves bits upwards only
    mixed = folded * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))


@compiled()
def build_index(ids: Int64s, keys: Int64s, places: Int32s) -> None:
    """Enter distinct ids in an open-addressing index. Its size is a power of two above len(ids)."""
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
    """Count ids in a table of fixed size. Where it is full, the rarest id nearby loses a count, and its place at 0."""
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
