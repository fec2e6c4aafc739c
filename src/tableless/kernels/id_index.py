"""Compiled loops for ids that are asked for: an index from ids to vectors, the distinct ids of a batch, and counts."""

from __future__ import annotations

import numpy as np

from . import Floats, Int32s, Int64s
from .compiling import compiled

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
