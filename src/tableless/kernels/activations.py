"""Compiled loops of the network: Mish, batch norm with Mish, and Mish between layers of bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import Floats
from .compiling import FAST_MATH, bits_of_float, compiled, float_of_bits

Bytes = NDArray[np.int8]
Sums = NDArray[np.int32] | NDArray[np.float32]

_f32 = np.float32
_LOG2_E = _f32(1.4426950408889634)
_BLOCK = 32  # rows summed up in float32, before they are added to a float64


@compiled(inline="always", fastmath=FAST_MATH)
def exponential(x: np.float32) -> np.float32:
    """eˣ of x clamped to [-40, 20], exact but for some units in the last place.

    Below -40 the sums would not change any more. But gradients would become subnormal numbers, with which a CPU
    computes ten times more slowly.
    """
    whole, rest = _split(x)
    p = _f32(1.5403530393381609e-4)  # 2^rest by its Taylor series, good to 1e-7
    p = p * rest + _f32(1.3333558146428443e-3)
    p = p * rest + _f32(9.6181291076284772e-3)
    p = p * rest + _f32(5.5504108664821580e-2)
    p = p * rest + _f32(2.4022650695910072e-1)
    p = p * rest + _f32(6.9314718055994531e-1)
    return (p * rest + _f32(1)) * _power_of_two(whole)


@compiled(inline="always", fastmath=FAST_MATH)
def rough_exponential(x: np.float32) -> np.float32:
    """The same with a series two terms shorter: good to 4e-5, which is enough for numbers that become bytes."""
    whole, rest = _split(x)
    p = _f32(9.6181291076284772e-3)
    p = p * rest + _f32(5.5504108664821580e-2)
    p = p * rest + _f32(2.4022650695910072e-1)
    p = p * rest + _f32(6.9314718055994531e-1)
    return (p * rest + _f32(1)) * _power_of_two(whole)


@compiled(inline="always", fastmath=FAST_MATH)
def _split(x: np.float32) -> tuple[np.int32, np.float32]:
    """x = (whole + rest)·ln 2 with |rest| ≤ ½."""
    z = min(max(x, _f32(-40)), _f32(20)) * _LOG2_E
    whole = np.int32(z + _f32(200.5)) - np.int32(200)
    return whole, z - _f32(whole)


@compiled(inline="always")
def _power_of_two(exponent: np.int32) -> np.float32:
    return float_of_bits(np.int32((exponent + np.int32(127)) << np.int32(23)))


@compiled(inline="always", fastmath=FAST_MATH)
def _mish_and_slope(x: np.float32) -> tuple[np.float32, np.float32]:
    """x·tanh(ln(1 + eˣ)) and its derivative, from one eˣ.

    With n = eˣ(eˣ + 2) they are x·n/(n + 2) and n/(n + 2) + 4x·eˣ(eˣ + 1)/(n + 2)². Beyond 20 they are x and 1.
    """
    e = exponential(x)
    n = e * (e + _f32(2))
    r = _f32(1) / (n + _f32(2))
    return x * n * r, n * r + x * _f32(4) * e * (e + _f32(1)) * r * r


@compiled(fastmath=FAST_MATH)
def mish_values(x: Floats, out: Floats) -> None:
    """Fill `out` with x·tanh(ln(1 + eˣ))."""
    for i in range(x.size):
        out[i], _ = _mish_and_slope(x[i])


@compiled(fastmath=FAST_MATH)
def mish_and_slope(x: Floats, out: Floats, slope: Floats) -> None:
    """Fill `out` with the same, and `slope` with its derivative."""
    for i in range(x.size):
        out[i], slope[i] = _mish_and_slope(x[i])


@compiled()
def moments(x: Floats, mean: Floats, variance: Floats) -> None:
    """Fill in the mean and the (biased) variance of each column of x [n, width], in one pass.

    Differences from the first row are summed up. With squares of the numbers themselves, rounding would hide the
    variance of a column whose mean is large.
    """
    rows, width = x.shape
    origin = x[0].copy()
    part, part_squares = np.empty(width, np.float32), np.empty(width, np.float32)
    sums, squares = np.zeros(width), np.zeros(width)
    for start in range(0, rows, _BLOCK):
        part[:], part_squares[:] = 0, 0
        for row in range(start, min(start + _BLOCK, rows)):
            xs = x[row]
            for i in range(width):
                part[i] += xs[i] - origin[i]
            for i in range(width):
                part_squares[i] += (xs[i] - origin[i]) * (xs[i] - origin[i])
        for i in range(width):
            sums[i] += part[i]
        for i in range(width):
            squares[i] += part_squares[i]
    for i in range(width):
        difference = sums[i] / rows
        mean[i] = origin[i] + difference
        variance[i] = max(squares[i] / rows - difference * difference, 0.0)


@compiled(fastmath=FAST_MATH)
def mish_of_line(x: Floats, scale: Floats, shift: Floats, out: Floats, slope: Floats) -> None:
    """out ← mish(x · scale + shift), slope ← the derivative of Mish there, for x [n, width]."""
    together = _rows_together(x.shape[1])
    scales, shifts = _repeated(scale, together), _repeated(shift, together)
    for row in range(0, x.shape[0], together):
        xs, ys = x[row : row + together].reshape(-1), out[row : row + together].reshape(-1)
        slopes = slope[row : row + together].reshape(-1)
        for i in range(xs.size):
            ys[i] = xs[i] * scales[i] + shifts[i]
        for i in range(xs.size):
            ys[i], slopes[i] = _mish_and_slope(ys[i])


@compiled(fastmath=FAST_MATH)
def norm_and_mish_backward(
    gradient: Floats,
    slope: Floats,
    x: Floats,
    mean: Floats,
    inverse_std: Floats,
    scale: Floats,
    out: Floats,
    to_weight: Floats,
    to_bias: Floats,
) -> None:
    """Fill in the gradients of x (`out`), weight and bias; `scale` is weight · inverse_std."""
    rows, width = out.shape
    part, part_along = np.empty(width, np.float32), np.empty(width, np.float32)
    sums, along = np.zeros(width), np.zeros(width)
    for start in range(0, rows, _BLOCK):
        part[:], part_along[:] = 0, 0
        for row in range(start, min(start + _BLOCK, rows)):
            ds, gs, slopes, xs = out[row], gradient[row], slope[row], x[row]
            for i in range(width):
                ds[i] = gs[i] * slopes[i]
            for i in range(width):
                part[i] += ds[i]
            for i in range(width):
                part_along[i] += ds[i] * (xs[i] - mean[i])
        for i in range(width):
            sums[i] += part[i]
        for i in range(width):
            along[i] += part_along[i]
    tilt, shift = np.empty(width, np.float32), np.empty(width, np.float32)
    for i in range(width):
        to_bias[i], to_weight[i] = sums[i], along[i] * inverse_std[i]
        tilt[i] = -scale[i] * inverse_std[i] * inverse_std[i] * along[i] / rows
        shift[i] = -scale[i] * sums[i] / rows - tilt[i] * mean[i]
    together = _rows_together(width)
    scales, tilts, shifts = _repeated(scale, together), _repeated(tilt, together), _repeated(shift, together)
    for row in range(0, rows, together):
        ds, xs = out[row : row + together].reshape(-1), x[row : row + together].reshape(-1)
        for i in range(ds.size):
            ds[i] = ds[i] * scales[i] + (xs[i] * tilts[i] + shifts[i])


@compiled()
def _rows_together(width: int) -> int:
    """Rows done in one go: as many as stay in the cache. Alone, each row would end in a part too short for a vector."""
    return max(1, 1024 // width)


@compiled()
def _repeated(values: Floats, times: int) -> Floats:
    result = np.empty(times * values.size, np.float32)
    for time in range(times):
        result[time * values.size : (time + 1) * values.size] = values
    return result


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
    """The same as bytes. Each row has the finest scale that holds it. `out_row_scale` may be `row_scale` itself."""
    xs = np.empty(sums.shape[1], np.float32)
    least = _f32(floor)
    for row in range(sums.shape[0]):
        inputs, outputs, factor = sums[row], out[row], row_scale[row]
        largest = np.int32(0)  # a maximum of floats is slow, and bits of positive numbers have the same order
        for i in range(xs.size):
            x = (_f32(inputs[i]) * scale[i] + shift[i]) * factor + bias[i]
            y = max((_mish(x, rough_exponential(x)) - least) * inverse_channel[i], _f32(1e-10))
            xs[i] = y
            largest = max(largest, bits_of_float(y))
        most = float_of_bits(np.int32(largest))
        out_row_scale[row] = most / _f32(255)
        inverse = _f32(255) / most
        for i in range(xs.size):  # adding ½ and cutting off the fraction rounds a positive number
            outputs[i] = np.int8(np.int32(xs[i] * inverse + _f32(0.5)) - np.int32(128))


@compiled(inline="always", fastmath=FAST_MATH)
def _mish(x: np.float32, e: np.float32) -> np.float32:
    """Mish of x, given e = eˣ."""
    n = e * (e + _f32(2))
    return x * n / (n + _f32(2))
