"""Compiled loops for rows coded by a trellis: writing bits, and the way back to the vector.

`embedding/trellis.py` says what the code is, and `trellis_search.py` finds it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import Doubles, Floats, Int32s, Int64s, UInt8s
from .compiling import compiled
from .id_rows import find_rows, hash_of

UInt64s = NDArray[np.uint64]

_u64 = np.uint64
_TOGETHER = 64  # rows that are decoded together: all of what is read for them stays in the cache


@compiled()
def write_rows(
    words: UInt64s,
    places: Int64s,
    fields: Int64s,
    field_widths: Int64s,
    windows: UInt8s,
    widths: Int64s,
    length: int,
) -> None:
    """Write rows that begin at the bits `places` [n], where all bits must be zero.

    A row has the values `fields` [n, fields], each in its width, and of each of the `windows` [n, dims], which have
    `length` bits, the uppermost ones: as many as the width of the dimension.
    """
    for i in range(len(places)):
        place = _u64(places[i])
        for j in range(len(field_widths)):
            _put(words, place, _u64(fields[i, j]))
            place += _u64(field_widths[j])
        for j in range(len(widths)):
            _put(words, place, _u64(windows[i, j]) >> _u64(length - widths[j]))
            place += _u64(widths[j])


@compiled(inline="always")
def _put(words: UInt64s, place: np.uint64, value: np.uint64) -> None:
    """A number at a bit. Its upper part may reach into the next word; there is always one."""
    word, shift = place >> _u64(6), place & _u64(63)
    words[word] |= value << shift
    words[word + _u64(1)] |= (value >> _u64(1)) >> (_u64(63) - shift)


@compiled()
def best_gains(
    vectors: Doubles, windows: UInt8s, bits: Int64s, levels: Doubles, scale: Doubles, mean: Doubles, out: Doubles
) -> None:
    """The factor of each coded direction that brings it nearest to its vector [n, dims]; never negative, never zero.

    `windows` [n, dims with bits] are those of the direction.
    """
    for i in range(len(vectors)):
        product, square, own = 0.0, 0.0, _u64(0)
        for j in range(len(bits)):
            value = mean[j]
            if bits[j] > 0:
                value += scale[j] * levels[windows[i, own]]
                own += _u64(1)
            product += vectors[i, j] * value
            square += value * value
        out[i] = max(product / max(square, 1e-24), 1e-9)


@compiled(inline="always")
def _bits_at(words: UInt64s, place: np.uint64) -> np.uint64:
    """The 64 bits that begin at a bit. The array has a word more than the rows need."""
    word, shift = place >> _u64(6), place & _u64(63)
    return (words[word] >> shift) | ((words[word + _u64(1)] << _u64(1)) << (_u64(63) - shift))


@compiled(inline="always")
def _circle(words: UInt64s, begin: np.uint64, end: np.uint64, length: np.uint64, halves: UInt64s) -> None:
    """64 bits from each 32nd bit on of a circle: the bits from `begin` to `end`, the last `length` also before them."""
    low = _bits_at(words, end - length) & ((_u64(1) << length) - _u64(1))
    for number in range(len(halves)):
        place = begin + _u64(32 * number)
        own = _bits_at(words, place) if place < end else _u64(0)
        halves[number] = (own << length) | low
        low = (own & _u64(0xFFFFFFFF)) >> (_u64(32) - length)


@compiled(inline="always")
def _load(rows: Int64s, words: UInt64s, layout: Int64s, fields: UInt64s, halves: UInt64s) -> None:
    """What stands before the direction of each of some rows, and its circle. It is for at most `_TOGETHER` rows.

    The first loop does nothing but touch the words. So all of them come from memory at the same time; the second loop
    alone has to wait for each. That makes decoding four times as fast.
    """
    num_bits, before, length = _u64(layout[0]), _u64(layout[2]), _u64(layout[3])
    for i in range(len(rows)):
        place = _u64(rows[i]) * num_bits
        fields[i] = words[place >> _u64(6)] ^ words[(place + num_bits) >> _u64(6)]
    mask = (_u64(1) << before) - _u64(1)
    for i in range(len(rows)):
        place = _u64(rows[i]) * num_bits
        fields[i] = _bits_at(words, place) & mask
        _circle(words, place + before, place + num_bits, length, halves[i])


@compiled(inline="always")
def _room(layout: Int64s, ends: NDArray[np.int16]) -> tuple[UInt64s, UInt64s, UInt64s, UInt64s]:
    """Room for what `_load` fills, and in which half and at which bit of it the window of each dimension begins."""
    num_halves = (layout[0] - layout[2] + layout[3]) // 32 + 1
    places = ends.astype(np.uint64)
    fields, halves = np.empty(_TOGETHER, np.uint64), np.empty((_TOGETHER, num_halves), np.uint64)
    return fields, halves, places >> _u64(5), places & _u64(31)


@compiled()
def read_codes(
    rows: Int64s, words: UInt64s, layout: Int64s, ends: NDArray[np.int16], gains: Int64s, windows: Int64s
) -> None:
    """The number of the gain [n] and the windows [n, embedding_dim] of rows [n]; `decode` says what the rest is."""
    fields, halves, half, shift = _room(layout, ends)
    mask, gain_mask = (_u64(1) << _u64(layout[3])) - _u64(1), (_u64(1) << _u64(layout[1])) - _u64(1)
    for start in range(0, len(rows), _TOGETHER):
        _load(rows[start : start + _TOGETHER], words, layout, fields, halves)
        for i in range(start, min(start + _TOGETHER, len(rows))):
            own = halves[i - start]
            gains[i] = np.int64(fields[i - start] & gain_mask)
            for j in range(windows.shape[1]):
                windows[i, j] = np.int64((own[half[j]] >> shift[j]) & mask)


@compiled()
def decode(
    rows: Int64s,
    words: UInt64s,
    layout: Int64s,
    ends: NDArray[np.int16],
    levels: Floats,
    scale: Floats,
    mean: Floats,
    gains: Floats,
    out: Floats,
) -> None:
    """`out[i]` = gain · (mean + scale · level of each window) [n, embedding_dim], for rows of coded vectors [n].

    `layout` has the bits of a row, of its gain, of all before its direction, and of a window, and the key of the check
    bits. `ends` [embedding_dim] says where the bits of each dimension end; the scale of a dimension without bits is
    zero. Indices are unsigned, because numba looks whether a signed one is negative.
    """
    fields, halves, half, shift = _room(layout, ends)
    firsts = np.searchsorted(half, np.arange(halves.shape[1] + 1)).astype(np.uint64)
    mask, gain_mask = (_u64(1) << _u64(layout[3])) - _u64(1), (_u64(1) << _u64(layout[1])) - _u64(1)
    for start in range(0, len(rows), _TOGETHER):
        end = min(start + _TOGETHER, len(rows))
        _load(rows[start:end], words, layout, fields, halves)
        for i in range(start, end):
            row = out[i]
            for number in range(halves.shape[1]):  # dimensions whose windows begin in the same half: it is loaded once
                own = halves[i - start, number]
                for j in range(firsts[number], firsts[number + 1]):
                    row[j] = levels[(own >> shift[j]) & mask]
        for i in range(start, end):  # a loop of its own: what was written number by number is then read eight at a time
            row, gain = out[i], gains[fields[i - start] & gain_mask]
            for j in range(row.size):
                row[j] = gain * (mean[j] + scale[j] * row[j])


@compiled()
def find_and_decode(
    ids: Int64s,
    key: int,
    cells: Int64s,
    ranks: Int32s,
    sizes: tuple[int, int, int],
    words: UInt64s,
    layout: Int64s,
    ends: NDArray[np.int16],
    levels: Floats,
    scale: Floats,
    mean: Floats,
    gains: Floats,
    known: NDArray[np.bool_],
    out: Floats,
) -> None:
    """From ids to vectors without a stop: `id_rows.find_rows` and `decode`. For a hundred ids, calls cost as much.

    If there are check bits, `known` [n] says which ids have theirs.
    """
    rows = np.empty(len(ids), np.int64)
    find_rows(ids, key, cells, ranks, sizes[0], sizes[1], sizes[2], rows)
    decode(rows, words, layout, ends, levels, scale, mean, gains, out)
    mask = (_u64(1) << _u64(layout[2] - layout[1])) - _u64(1)
    for i in range(len(known)):
        own = _bits_at(words, _u64(rows[i]) * _u64(layout[0])) >> _u64(layout[1])
        known[i] = (own ^ hash_of(ids[i], layout[4])) & mask == _u64(0)
