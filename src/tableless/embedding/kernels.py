"""The compiled loops behind hashing. Importing this module imports numba (0.3 s), so do it where a kernel is called."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .compiling import FAST_MATH, compiled, float_of_bits

Int64s = NDArray[np.int64]
UInt32s = NDArray[np.uint32]
Floats = NDArray[np.float32]


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
    """Below 2^63. That all factors have 32 bits is for the compiler to see: it multiplies such much faster."""
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

    What is left lies between -divisor and twice the divisor, so its low 32 bits tell it: the others are not computed.
    """
    rest = np.int32(dividend - quotient * divisor)
    rest = np.int32(rest + divisor) if rest < 0 else rest
    return np.int32(rest - divisor) if rest >= divisor else rest


@compiled()
def _columns(coefficients: Int64s) -> tuple[UInt32s, UInt32s, UInt32s, NDArray[np.int32]]:
    """Each coefficient's values side by side in memory, as vector loads want them; they are below 2^30."""
    columns = coefficients.T
    high, low, offset = columns[0].astype(np.uint32), columns[1].astype(np.uint32), columns[2].astype(np.uint32)
    return high, low, offset, columns[3].astype(np.int32)


_f32 = np.float32
_LOG2_E = _f32(1.4426950408889634)
_BLOCK = 32  # rows summed up in float32, before they are added to a float64


@compiled(inline="always", fastmath=FAST_MATH)
def exponential(x: np.float32) -> np.float32:
    """eˣ, good to some units in the last place, of x clamped to [-40, 20].

    Less would make no difference to a sum, but subnormal numbers of the gradients, which take ten times as long.
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
    """The same, good to 4e-5, which is enough for what is rounded to a byte: the series ends two terms earlier."""
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

    With n = eˣ(eˣ + 2): x·n/(n + 2) and n/(n + 2) + 4x·eˣ(eˣ + 1)/(n + 2)². Beyond 20 both are x and 1.
    """
    e = exponential(x)
    n = e * (e + _f32(2))
    r = _f32(1) / (n + _f32(2))
    return x * n * r, n * r + x * _f32(4) * e * (e + _f32(1)) * r * r


@compiled(fastmath=FAST_MATH)
def mish(x: Floats, out: Floats) -> None:
    """Fill `out` with x·tanh(ln(1 + eˣ))."""
    for i in range(x.size):
        out[i], _ = _mish_and_slope(x[i])


@compiled(fastmath=FAST_MATH)
def mish_and_slope(x: Floats, out: Floats, slope: Floats) -> None:
    """The same, and its derivative."""
    for i in range(x.size):
        out[i], slope[i] = _mish_and_slope(x[i])


@compiled()
def moments(x: Floats, mean: Floats, variance: Floats) -> None:
    """Fill in the mean and the (biased) variance of each column of x [n, width], in one pass.

    Differences from the first row are summed up: a variance from squares of the numbers themselves would be lost where
    the mean is large.
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
    """Rows done in one go: as many as stay in the cache. The end of each, too short for a vector, would be slow."""
    return max(1, 1024 // width)


@compiled()
def _repeated(values: Floats, times: int) -> Floats:
    result = np.empty(times * values.size, np.float32)
    for time in range(times):
        result[time * values.size : (time + 1) * values.size] = values
    return result
