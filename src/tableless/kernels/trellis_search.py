"""The compiled search for the best code of a row by a trellis. `embedding/trellis.py` says what the code is.

Several rows are searched side by side: each step of the search is then the same for all of them, and one instruction of
the processor takes it for eight rows at once.
"""

from __future__ import annotations

import numpy as np

from . import Floats, Int64s, UInt8s
from .compiling import compiled

# Rows side by side. What is kept of them must stay in the cache, so there are fewer if they are long.
_MANY, _FEWER, _LONG = 32, 16, 64
_FAR = np.float32(1e30)  # the cost of what is not allowed


@compiled(fastmath=True)
def best_windows(rows: Floats, scale: Floats, bits: Int64s, levels: Floats, out: UInt8s) -> None:
    """The code of each row [n, dims] with the least squared error, as the window of each dimension [n, dims].

    `bits` [dims] are at least 1, and at least log2 of the number of `levels` together. Dynamic programming: the cost of
    each window at a dimension is its own error and the cost of the cheapest window that can stand before it. The bits
    of a row are a circle, so that its beginning depends on its end. The first pass begins in the middle and shows what
    a good code has at the seam; the second pass keeps to that.
    """
    num_rows, dims = rows.shape
    lanes = _MANY if dims <= _LONG else _FEWER
    values = np.empty((dims, lanes), np.float32)
    cost, room = np.empty((dims, len(levels), lanes), np.float32), np.empty((2, len(levels), lanes), np.float32)
    seam, path = np.zeros(lanes, np.int64), np.empty(dims, np.int64)
    seam_bits = 0  # that windows on both sides of the seam share
    while (1 << (seam_bits + bits[0])) < len(levels):
        seam_bits += 1
    for start in range(0, num_rows, lanes):
        count = min(lanes, num_rows - start)
        for lane in range(lanes):  # where there are fewer rows, the last one is repeated
            for dim in range(dims):
                values[dim, lane] = rows[start + min(lane, count - 1), dim]
        for number in range(2):
            first = dims // 2 if number == 0 else 0
            _errors(values[first], scale[first], levels, cost[0])
            if number == 1:
                _keep_to_seam(cost[0], seam, (1 << seam_bits) - 1)
            for step in range(1, dims):
                dim = (first + step) % dims
                _advance(values[dim], scale[dim], bits[dim], levels, cost[step - 1], room, cost[step])
            for lane in range(count):
                ends = len(levels) >> seam_bits  # windows at the end whose upper bits are those of the seam
                begin, ends = (0, len(levels)) if number == 0 else (seam[lane] * ends, (seam[lane] + 1) * ends)
                _walk_back(cost, lane, first, bits, begin, ends, path)
                if number == 0:
                    seam[lane] = path[(dims - first) % dims] & ((1 << seam_bits) - 1)
                else:
                    for dim in range(dims):
                        out[start + lane, dim] = path[dim]


@compiled(inline="always", fastmath=True)
def _errors(values: Floats, scale: float, levels: Floats, cost: Floats) -> None:
    """The squared error of each window [windows, lanes] at a dimension."""
    for window in range(len(levels)):
        level = scale * levels[window]
        for lane in range(len(values)):
            error = values[lane] - level
            cost[window, lane] = error * error


@compiled(inline="always", fastmath=True)
def _keep_to_seam(cost: Floats, seam: Int64s, mask: int) -> None:
    """Windows whose lower bits are not those of the seam [lanes] are not allowed."""
    for window in range(len(cost)):
        for lane in range(len(seam)):
            if seam[lane] != (window & mask):
                cost[window, lane] = _FAR


@compiled(inline="always", fastmath=True)
def _advance(
    values: Floats, scale: float, width: int, levels: Floats, cost: Floats, room: Floats, after: Floats
) -> None:
    """From the costs at one dimension to those at the next, which adds `width` bits on top of each window.

    Windows that can stand before a window are neighbours: all with the same upper bits. Which of them is the cheapest
    is found later, on the way back, for the few windows that lie on it.
    """
    own, shared = 0, len(levels)
    if width & 1:
        shared >>= 1
        _least_of_two(cost, shared, room[0])
    else:
        shared >>= 2
        _least_of_four(cost, shared, room[0])
    for _ in range((width - 1) >> 1):
        shared >>= 2
        _least_of_four(room[own], shared, room[1 - own])
        own = 1 - own
    cheapest = room[own]
    for window in range(len(levels)):
        level = scale * levels[window]
        for lane in range(len(values)):
            error = values[lane] - level
            after[window, lane] = cheapest[window & (shared - 1), lane] + error * error


@compiled(inline="always", fastmath=True)
def _least_of_two(cost: Floats, count: int, out: Floats) -> None:
    for low in range(count):
        for lane in range(cost.shape[1]):
            one, other = cost[2 * low, lane], cost[2 * low + 1, lane]
            out[low, lane] = other if other < one else one


@compiled(inline="always", fastmath=True)
def _least_of_four(cost: Floats, count: int, out: Floats) -> None:
    for low in range(count):
        for lane in range(cost.shape[1]):
            one, other = cost[4 * low, lane], cost[4 * low + 1, lane]
            third, fourth = cost[4 * low + 2, lane], cost[4 * low + 3, lane]
            one, third = other if other < one else one, fourth if fourth < third else third
            out[low, lane] = third if third < one else one


@compiled(inline="always", fastmath=True)
def _walk_back(cost: Floats, lane: int, first: int, bits: Int64s, begin: int, end: int, path: Int64s) -> None:
    """The windows of the cheapest code of one row that ends with one of the windows `begin` to `end`."""
    dims, num_windows = cost.shape[0], cost.shape[1]
    for step in range(dims - 1, -1, -1):
        which = begin
        for window in range(begin + 1, end):
            if cost[step, window, lane] < cost[step, which, lane]:
                which = window
        path[step] = which
        width = bits[(first + step) % dims]
        begin = (which & ((num_windows >> width) - 1)) << width
        end = begin + (1 << width)
