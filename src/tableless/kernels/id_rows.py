"""Compiled loops that find an id's row without a list of ids. embedding/id_rows.py says what the arrays mean.

Everything is computed in unsigned 64-bit numbers: numba turns a sum of signed and unsigned ones into a float.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import Int32s, Int64s
from .compiling import compiled, count_ones

Words = NDArray[np.uint64]

_u64 = np.uint64
_LOW = _u64(0xFFFFFFFF)
_EVEN_BITS = _u64(0x5555555555555555)  # the lower bit of each of the 32 cells in a word
_CHUNK = 256  # ids that are done together: what the first pass over them has read is then still in the cache
_MOST = 62  # hashes in a cell, whose count has six bits; distinct ids do not come near that


@compiled()
def find_rows(
    ids: Int64s,
    key: int,
    cells: Int64s,
    ranks: Int32s,
    num_ids: int,
    num_segments: int,
    segment_length: int,
    out: Int64s,
) -> None:
    """Fill `out` with the rows of `ids`. Each is in [0, num_ids), whatever `cells` and `ranks` hold.

    Own cells and their ranks are found in two passes, and without a branch that depends on the id. That takes a quarter
    less time: a processor can't guess which of three cells it will be, and would often begin with a wrong one.
    """
    if 32 * cells.size < num_segments * segment_length or 8 * ranks.size < cells.size or out.size < ids.size:
        raise ValueError("there are too few cells or ranks for this number of ids; load them together with it")
    words, num, length = cells.view(np.uint64), _u64(num_segments), _u64(segment_length)
    for start in range(0, ids.size, _CHUNK):
        end = min(start + _CHUNK, ids.size)
        for i in range(start, end):
            first, second, third = cells_of(hash_of(ids[i], key), num, length)
            total = _value(words, first) + _value(words, second) + _value(words, third)
            out[i] = np.int64(_pick(first, second, third, _modulo_3(total)))
        for i in range(start, end):
            row = _owned_before(_u64(out[i]), words, ranks)
            out[i] = min(max(row, np.int64(0)), np.int64(num_ids - 1))


@compiled(inline="always")
def cells_of(hash_: np.uint64, num_segments: np.uint64, length: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64]:
    """The three cells of a hash: one in each of three segments that follow each other in the circle."""
    segment = _first_segment(hash_, num_segments)
    third = segment + _u64(2)
    third = third if third < num_segments else _u64(0)
    one = (hash_ * _u64(0x9E3779B97F4A7C15)) >> _u64(32)
    other = (hash_ * _u64(0xD1342543DE82EF95)) >> _u64(32)
    return (
        segment * length + ((one * length) >> _u64(32)),
        (segment + _u64(1)) * length + (((hash_ & _LOW) * length) >> _u64(32)),
        third * length + ((other * length) >> _u64(32)),
    )


@compiled()
def sort_hashes(ids: Int64s, key: int, num_segments: int, out: Words) -> None:
    """Fill `out` with the hashes of the ids, those with the same first segment together.

    What is then done hash by hash stays within three segments for a while, which fit into the cache.
    """
    places, num = np.zeros(num_segments, np.int64), _u64(num_segments)
    for i in range(ids.size):
        places[_first_segment(hash_of(ids[i], key), num) + _u64(1)] += 1
    for segment in range(1, num_segments):
        places[segment] += places[segment - 1]
    for i in range(ids.size):
        hash_ = hash_of(ids[i], key)
        first = _first_segment(hash_, num)
        out[places[first]] = hash_
        places[first] += 1


@compiled()
def peel(hashes: Words, sides: NDArray[np.uint8], num_segments: int, segment_length: int) -> bool:
    """Put the hashes in an order in which each has a cell that no later one has; `sides` says which of its three.

    Returns whether there is such an order. If not, `hashes` is spoiled, and another key is needed.

    A cell remembers how many hashes it has, and their exclusive or. So the last one of a cell is known without lists.
    """
    num, length = _u64(num_segments), _u64(segment_length)
    sums, marks = np.zeros(num * length, np.uint64), np.zeros(num * length, np.uint8)
    if not _enter(hashes, num, length, sums, marks):
        return False
    waiting = np.empty(marks.size, np.uint32)  # cells with one hash; a cell comes to that at most once
    num_waiting, num_done = 0, 0
    for cell in range(marks.size):
        if marks[cell] >> 2 == 1:
            waiting[num_waiting] = cell
            num_waiting += 1
    while num_waiting > 0:
        num_waiting -= 1
        cell = waiting[num_waiting]
        if marks[cell] >> 2 == 0:  # its last hash has found another cell in the meantime
            continue
        hash_ = sums[cell]
        hashes[num_done], sides[num_done] = hash_, marks[cell] & 3  # `sums` has all that is still needed of `hashes`
        num_done += 1
        cells = cells_of(hash_, num, length)
        for side in range(3):
            sums[cells[side]] ^= hash_
            mark = (marks[cells[side]] - np.uint8(4)) ^ np.uint8(side)
            marks[cells[side]] = mark
            if mark >> 2 == 1:
                waiting[num_waiting] = cells[side]
                num_waiting += 1
    return num_done == hashes.size


@compiled()
def write_cells(
    hashes: Words, sides: NDArray[np.uint8], num_segments: int, segment_length: int, cells: Int64s, ranks: Int32s
) -> None:
    """Fill `cells` so that the values of a hash's three cells add up to its side, modulo 3, and then `ranks`.

    The last hash comes first. So no cell that a hash reads is written later: it would be the own cell of a hash that
    was peeled before, and such a cell has no later hash.
    """
    words, num, length = cells.view(np.uint64), _u64(num_segments), _u64(segment_length)
    words[:] = ~_u64(0)
    for i in range(hashes.size - 1, -1, -1):
        first, second, third = cells_of(hashes[i], num, length)
        total = _value(words, first) + _value(words, second) + _value(words, third)  # the own cell adds 3, which is 0
        value = _modulo_3(_u64(sides[i]) + _u64(9) - total)
        own = _pick(first, second, third, _u64(sides[i]))
        words[own >> _u64(5)] ^= (value ^ _u64(3)) << _shift(own)
    count = np.int64(0)
    for word in range(words.size):
        if word & 7 == 0:
            ranks[word >> 3] = count
        count += 32 - np.int64(count_ones(_free(words[word])))


@compiled()
def _enter(hashes: Words, num: np.uint64, length: np.uint64, sums: Words, marks: NDArray[np.uint8]) -> bool:
    """Enter the hashes in their cells. A mark is four times the count; its two lower bits are the xor of the sides."""
    for i in range(hashes.size):
        cells = cells_of(hashes[i], num, length)
        for side in range(3):
            sums[cells[side]] ^= hashes[i]
            mark = (marks[cells[side]] + np.uint8(4)) ^ np.uint8(side)
            marks[cells[side]] = mark
            if mark >> 2 == _MOST:
                return False
    return True


@compiled(inline="always")
def hash_of(id_: np.int64, key: int) -> np.uint64:
    """The output function of SplitMix64."""
    z = _u64(id_) ^ _u64(key)
    z = (z ^ (z >> _u64(30))) * _u64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> _u64(27))) * _u64(0x94D049BB133111EB)
    return z ^ (z >> _u64(31))


@compiled(inline="always")
def _first_segment(hash_: np.uint64, num_segments: np.uint64) -> np.uint64:
    return ((hash_ >> _u64(32)) * (_u64(4) * num_segments - _u64(5))) >> _u64(34)


@compiled(inline="always")
def _owned_before(cell: np.uint64, words: Words, ranks: Int32s) -> np.int64:
    """How many cells before this one belong to an id: those before its block of 8 words, and those in the block."""
    own_word = cell >> _u64(5)
    num_free = count_ones(_free(words[own_word]) & ((_u64(1) << _shift(cell)) - _u64(1)))
    for place in range(7):  # always seven, for the reason above; words that are too far count for nothing
        word = ((cell >> _u64(8)) << _u64(3)) + _u64(place)
        mask = ~_u64(0) if word < own_word else _u64(0)
        num_free += count_ones(_free(words[word if word < own_word else own_word]) & mask)
    return np.int64(ranks[cell >> _u64(8)]) + np.int64((cell & _u64(255)) - num_free)


@compiled(inline="always")
def _free(word: np.uint64) -> np.uint64:
    """One bit for each cell of a word that belongs to no id: its value is 3."""
    return word & (word >> _u64(1)) & _EVEN_BITS


@compiled(inline="always")
def _value(words: Words, cell: np.uint64) -> np.uint64:
    return (words[cell >> _u64(5)] >> _shift(cell)) & _u64(3)


@compiled(inline="always")
def _shift(cell: np.uint64) -> np.uint64:
    return (cell & _u64(31)) << _u64(1)


@compiled(inline="always")
def _modulo_3(number: np.uint64) -> np.uint64:
    """Of a number up to 15, without a division."""
    return number - _u64(3) * ((number * _u64(11)) >> _u64(5))


@compiled(inline="always")
def _pick(first: np.uint64, second: np.uint64, third: np.uint64, side: np.uint64) -> np.uint64:
    """The cell of a side in 0, 1, 2, by masks: a comparison would become a branch."""
    is_second, is_third = _u64(0) - (side & _u64(1)), _u64(0) - (side >> _u64(1))
    return first ^ ((first ^ second) & is_second) ^ ((first ^ third) & is_third)
