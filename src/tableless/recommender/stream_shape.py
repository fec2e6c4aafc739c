"""How the bytes of a stream's model are shared out between rows, networks and counts."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from ..embedding.budget import BYTES_PER_PARAMETER, Allowance, BudgetTooSmall
from .popularity import DecayedCounts
from .stream_side import WAYS

NUM_HASHES = 32
DEPTH = 2  # of the networks
_SKETCH_SHARE, _NETWORK_SHARE, _USER_SHARE = 1 / 8, 1 / 16, 2 / 3  # of bytes: all, all, those of rows
_LARGEST_WIDTH = 64
SKETCH_DEPTH = 3
_FEWEST = 8  # cells of a row of the sketch, units of a network
_BYTES_BESIDE = 1_000  # of the small parts: hash functions of the sketch, the network over counts


class StreamShape(NamedTuple):
    """How many bytes become what."""

    cells: int
    width: int
    user_rows: int
    item_rows: int


def shape_for(allowed: Allowance, dim: int) -> StreamShape:
    """The sizes of all parts, for a budget."""
    shape = _shape_of(allowed.num_bytes, dim)
    if min(shape.user_rows, shape.item_rows) < WAYS:
        least = bisect_left(range(2**30), WAYS, key=lambda size: min(_shape_of(size, dim)[2:]))
        raise BudgetTooSmall(allowed, least if allowed.unit == "bytes" else -(-least // BYTES_PER_PARAMETER))
    return shape


def _shape_of(num_bytes: int, dim: int) -> StreamShape:
    """With as many rows as are left when all else has its share, which may be none."""
    cells = max(_FEWEST, int(num_bytes * _SKETCH_SHARE) // _bytes_of_sketch(1))
    width = _FEWEST
    while width < _LARGEST_WIDTH and _bytes_of_networks(width + 1, dim) <= num_bytes * _NETWORK_SHARE:
        width += 1
    left = num_bytes - _bytes_of_sketch(cells) - _bytes_of_networks(width, dim) - _BYTES_BESIDE
    rows = max(0, left) // (8 + 4 * dim)  # a row with its id
    user_rows = int(rows * _USER_SHARE)
    return StreamShape(cells, width, user_rows, rows - user_rows)


def _bytes_of_sketch(cells: int) -> int:
    return 4 * DecayedCounts.num_counts * SKETCH_DEPTH * cells


def _bytes_of_networks(width: int, dim: int) -> int:
    weights = (NUM_HASHES + 1) * width + (width + 1) * width + (width + 1) * dim
    return 2 * (4 * weights + 32 * NUM_HASHES)
