"""The compiled loops behind hashing. Importing this module imports numba (0.3 s), so do it where a kernel is called."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .compiling import compiled

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


_BLOCK = 512  # numbers that stay in the first-level cache through all passes of an activation
_f32 = np.float32


# Of fast math only what keeps every operation's rounding: a number's result must not depend on where in a vector it is.
@compiled(inline="always", fastmath={"nnan", "ninf", "nsz"})
def exponential(x: Floats, e: Floats, bits: NDArray[np.int32]) -> None:
    """Fill `e` with eˣ, good to some units in the last place, of x clamped to [-80, 20]; `bits` is room to work in."""
    _split(x, e, bits)
    power = bits.view(np.float32)
    for i in range(x.size):  # 2^rest by its Taylor series, good to 1e-7 for |rest| ≤ ½
        rest = e[i]
        p = _f32(1.5403530393381609e-4)
        p = p * rest + _f32(1.3333558146428443e-3)
        p = p * rest + _f32(9.6181291076284772e-3)
        p = p * rest + _f32(5.5504108664821580e-2)
        p = p * rest + _f32(2.4022650695910072e-1)
        p = p * rest + _f32(6.9314718055994531e-1)
        e[i] = (p * rest + _f32(1)) * power[i]


@compiled(inline="always", fastmath={"nnan", "ninf", "nsz"})
def rough_exponential(x: Floats, e: Floats, bits: NDArray[np.int32]) -> None:
    """The same, good to 4e-5, which is enough for what is rounded to a byte: the series ends two terms earlier."""
    _split(x, e, bits)
    power = bits.view(np.float32)
    for i in range(x.size):
        rest = e[i]
        p = _f32(9.6181291076284772e-3)
        p = p * rest + _f32(5.5504108664821580e-2)
        p = p * rest + _f32(2.4022650695910072e-1)
        p = p * rest + _f32(6.9314718055994531e-1)
        e[i] = (p * rest + _f32(1)) * power[i]


@compiled(inline="always", fastmath={"nnan", "ninf", "nsz"})
def _split(x: Floats, rest: Floats, bits: NDArray[np.int32]) -> None:
    """x = (whole + rest)·ln 2 with |rest| ≤ ½; `bits` are those of the float 2^whole."""
    for i in range(x.size):
        z = min(max(x[i], _f32(-80)), _f32(20)) * _f32(1.4426950408889634)
        whole = np.int32(z + _f32(200.5)) - np.int32(200)
        rest[i] = z - _f32(whole)
        bits[i] = (whole + np.int32(127)) << np.int32(23)


# Each pass touches three arrays at most: with more, LLVM gives up proving that they do not overlap, and vectorising.
@compiled(fastmath={"nnan", "ninf", "nsz"})
def mish(x: Floats, out: Floats, slope: Floats) -> None:
    """Fill `out` with x·tanh(ln(1 + eˣ)) and, unless it is empty, `slope` with the derivative, both from one eˣ.

    With n = eˣ(eˣ + 2): out = x·n/(n + 2), slope = n/(n + 2) + 4x·eˣ(eˣ + 1)/(n + 2)². Beyond 20 both are x and 1.
    """
    bits = np.empty(_BLOCK, np.int32)
    e = np.empty(_BLOCK, np.float32)
    for start in range(0, x.size, _BLOCK):
        xs, ys, slopes = x[start : start + _BLOCK], out[start : start + _BLOCK], slope[start : start + _BLOCK]
        exponential(xs, e, bits)
        for i in range(xs.size):
            n = e[i] * (e[i] + _f32(2))
            ys[i] = xs[i] * n / (n + _f32(2))
        for i in range(slopes.size):
            n = e[i] * (e[i] + _f32(2))
            r = _f32(1) / (n + _f32(2))
            slopes[i] = n * r + xs[i] * _f32(4) * e[i] * (e[i] + _f32(1)) * r * r


@compiled()
def moments(x: Floats, mean: Floats, variance: Floats) -> None:
    """Fill in the mean and the (biased) variance of each column of x [n, width]; sums are kept in float64."""
    sums = np.zeros(x.shape[1])
    for row in range(x.shape[0]):
        xs = x[row]
        for i in range(xs.size):
            sums[i] += np.float64(xs[i])
    for i in range(sums.size):
        mean[i] = sums[i] / x.shape[0]
    sums[:] = 0.0
    for row in range(x.shape[0]):
        xs = x[row]
        for i in range(xs.size):
            difference = xs[i] - mean[i]
            sums[i] += np.float64(difference * difference)
    for i in range(sums.size):
        variance[i] = sums[i] / x.shape[0]


@compiled(fastmath={"nnan", "ninf", "nsz"})
def normalize_and_mish(
    x: Floats,
    mean: Floats,
    inverse_std: Floats,
    weight: Floats,
    bias: Floats,
    normal: Floats,
    out: Floats,
    slope: Floats,
) -> None:
    """normal ← (x - mean) · inverse_std, out ← mish(normal · weight + bias), slope ← its derivative; row by row."""
    together = _rows_together(x.shape[1])
    means, inverse_stds = _repeated(mean, together), _repeated(inverse_std, together)
    weights, biases = _repeated(weight, together), _repeated(bias, together)
    bits = np.empty(means.size, np.int32)
    e = np.empty(means.size, np.float32)
    for row in range(0, x.shape[0], together):
        xs, normals = x[row : row + together].reshape(-1), normal[row : row + together].reshape(-1)
        ys, slopes = out[row : row + together].reshape(-1), slope[row : row + together].reshape(-1)
        for i in range(xs.size):
            normals[i] = xs[i] - means[i]
        for i in range(xs.size):
            normals[i] *= inverse_stds[i]
        for i in range(xs.size):
            ys[i] = normals[i] * weights[i]
        for i in range(xs.size):
            ys[i] += biases[i]
        exponential(ys, e, bits)
        for i in range(xs.size):
            n = e[i] * (e[i] + _f32(2))
            r = _f32(1) / (n + _f32(2))
            slopes[i] = n * r + ys[i] * _f32(4) * e[i] * (e[i] + _f32(1)) * r * r
        for i in range(xs.size):
            n = e[i] * (e[i] + _f32(2))
            ys[i] = ys[i] * n / (n + _f32(2))


@compiled(fastmath={"nnan", "ninf", "nsz"})
def normalize_and_mish_backward(
    gradient: Floats, normal: Floats, slope: Floats, scale: Floats, out: Floats, to_weight: Floats, to_bias: Floats
) -> None:
    """Fill in the gradients of x (`out`), weight and bias; `scale` is weight · inverse_std."""
    along, sums = np.zeros(out.shape[1]), np.zeros(out.shape[1])
    together = _rows_together(out.shape[1])
    for row in range(0, out.shape[0], together):
        ds, gs = out[row : row + together].reshape(-1), gradient[row : row + together].reshape(-1)
        slopes = slope[row : row + together].reshape(-1)
        for i in range(ds.size):
            ds[i] = gs[i] * slopes[i]
    for row in range(out.shape[0]):
        ds, normals = out[row], normal[row]
        for i in range(ds.size):
            sums[i] += np.float64(ds[i])
        for i in range(ds.size):
            along[i] += np.float64(ds[i] * normals[i])
    for i in range(sums.size):
        to_bias[i] = sums[i]
        to_weight[i] = along[i]
    means = _repeated((sums / out.shape[0]).astype(np.float32), together)
    tilts, scales = _repeated((along / out.shape[0]).astype(np.float32), together), _repeated(scale, together)
    for row in range(0, out.shape[0], together):
        ds, normals = out[row : row + together].reshape(-1), normal[row : row + together].reshape(-1)
        for i in range(ds.size):
            ds[i] -= normals[i] * tilts[i]
        for i in range(ds.size):
            ds[i] -= means[i]
        for i in range(ds.size):
            ds[i] *= scales[i]


@compiled()
def _rows_together(width: int) -> int:
    """Rows done in one go: as many as fit in the cache. The rest of a row that fills no vector is done one by one."""
    return max(1, 1024 // width)


@compiled()
def _repeated(values: Floats, times: int) -> Floats:
    result = np.empty(times * values.size, np.float32)
    for time in range(times):
        result[time * values.size : (time + 1) * values.size] = values
    return result
