"""The specified universal hash family: ids → buckets, to the bit (docs/encoding-spec.md, version 1).

Schemes that look up rows of a table mix the bits of an id first (`mix_ids`). Dense codes and routers do not.

The results of these functions can never change: trained models depend on them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..kernels import uses_kernels
from .id_batches import checked_ids

ENCODING_VERSION = 1
_WORD = (1 << 64) - 1
_FIRST_FACTOR, _SECOND_FACTOR = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64  # as signed 64-bit numbers


class HashFamily(nn.Module):
    """Hash functions from 64-bit ids to buckets 0 … `num_buckets` - 1.

    This is the paper's Algorithm 2, with the repairs that the specification lists. The functions follow from `seed`
    alone. Their coefficients are a buffer, int64 [num_hashes, 4] (high, low, b, p): they are saved with the state
    dict and are never trained.

    Args:
        num_hashes: How many functions there are (k in the paper).
        num_buckets: How many buckets each function has (m in the paper).
        seed: The functions are drawn from it.
        mixed: Hash `mix_ids(id)` instead of the id. Tables need that. Each function is a line modulo a prime, so ids
            that are numbered one after the other may all fall into few rows of a table.

    Raises:
        ValueError: `num_hashes` is below 1, or `num_buckets` is outside [1, 2^29].

    Example:
        ```python
        from tableless import HashFamily, to_ids

        family = HashFamily(4, num_buckets=1_000)
        buckets = family(to_ids(["ann", "ben"]))  # int64 [2, 4]
        print(buckets.tolist())
        ```
    """

    coefficients: Tensor

    def __init__(self, num_hashes: int, num_buckets: int = 1_000_000, seed: int = 0, *, mixed: bool = False) -> None:
        super().__init__()
        if num_hashes < 1:
            raise ValueError(f"num_hashes is {num_hashes}; at least 1 is needed")
        if not 1 <= num_buckets <= 2**29:
            raise ValueError(f"num_buckets is {num_buckets}; it must lie in [1, 2^29], below every prime of the family")
        self.num_hashes = num_hashes
        self.num_buckets = num_buckets
        self.seed = seed
        self.mixed = mixed
        self.register_buffer("coefficients", torch.tensor(_coefficients(num_hashes, seed % 2**64)))

    def buckets(self, ids: Tensor) -> Tensor:
        """The buckets of ids: int64 or int32 [...] -> int64 [..., num_hashes]."""
        ids = checked_ids(ids)  # the hashes are defined on 64 bits, so an id of 32 bits is widened
        if self.mixed:
            ids = mix_ids(ids)
        if uses_kernels(ids):
            return kernel_buckets(ids, self.coefficients, self.num_buckets)
        return torch_buckets(ids, self.coefficients, self.num_buckets)

    def forward(self, ids: Tensor) -> Tensor:
        """The same as `buckets`: a torch module is called by its forward."""
        return self.buckets(ids)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"num_hashes={self.num_hashes}, num_buckets={self.num_buckets}, seed={self.seed}, mixed={self.mixed}"


def derive_seed(seed: int, name: str) -> int:
    """Another seed for one purpose, such as a router or a feature. Other names give other, independent seeds."""
    from .ids import to_ids

    return next(split_mix_64((seed ^ int(to_ids(name))) & _WORD))


def mix_ids(ids: Tensor) -> Tensor:
    """Replace each id by another 64-bit number, so that neighbours have nothing in common: int64 [...] -> int64 [...].

    This is the output function of SplitMix64. Different ids stay different. It uses plain torch operations, which
    exported programs can hold.
    """
    # Products of int64 wrap around at 64 bits, which is what the function needs. `>>` fills up with copies of the sign,
    # and the mask removes them.
    z = (ids ^ ((ids >> 30) & ((1 << 34) - 1))) * _FIRST_FACTOR
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _SECOND_FACTOR
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def torch_buckets(ids: Tensor, coefficients: Tensor, num_buckets: int) -> Tensor:
    """The formula in plain torch operations, for any device, and for programs exported by ONNX or torch.export."""
    # ONNX has `%`, `>>` and `&`, but neither torch.fmod nor torch.div(rounding_mode=…). No operand is negative and
    # every intermediate result is below 2^63, so signed arithmetic is exact.
    high, low, offset, prime = coefficients.unbind(-1)  # [num_hashes] each
    upper = ((ids >> 32) & 0xFFFFFFFF).unsqueeze(-1)
    lower = (ids & 0xFFFFFFFF).unsqueeze(-1)
    return (high * upper + low * lower + offset) % prime % num_buckets  # [..., num_hashes]


@torch.library.custom_op("tableless::buckets", mutates_args=(), device_types="cpu")
def kernel_buckets(ids: Tensor, coefficients: Tensor, num_buckets: int) -> Tensor:
    """The formula as one compiled loop. It is a torch operator, so that torch.compile and torch.export know it."""
    from ..kernels import id_loops as loops

    return _filled(loops.buckets, ids, coefficients, num_buckets, torch.int64)


@kernel_buckets.register_fake
def _(ids: Tensor, coefficients: Tensor, num_buckets: int) -> Tensor:
    return torch.empty(*ids.shape, coefficients.shape[0], dtype=torch.int64, device=ids.device)


@torch.library.custom_op("tableless::uniform_codes", mutates_args=(), device_types="cpu")
def kernel_uniform_codes(ids: Tensor, coefficients: Tensor, num_buckets: int) -> Tensor:
    """Buckets scaled to [-1, 1], as float32. The buckets are not stored, which saves three quarters of the memory."""
    from ..kernels import id_loops as loops

    return _filled(loops.uniform_codes, ids, coefficients, num_buckets, torch.float32)


@kernel_uniform_codes.register_fake
def _(ids: Tensor, coefficients: Tensor, num_buckets: int) -> Tensor:
    return torch.empty(*ids.shape, coefficients.shape[0], dtype=torch.float32, device=ids.device)


def _filled(
    loop: Callable[..., None], ids: Tensor, coefficients: Tensor, num_buckets: int, dtype: torch.dtype
) -> Tensor:
    """What a loop writes for ids [...]: [..., num_hashes]."""
    out = torch.empty(*ids.shape, len(coefficients), dtype=dtype)
    loop(*_arrays(ids, coefficients), num_buckets, out.view(-1, len(coefficients)).numpy())
    return out


def _arrays(ids: Tensor, coefficients: Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return ids.contiguous().view(-1).numpy(), coefficients.contiguous().numpy()


def split_mix_64(seed: int) -> Iterator[int]:
    """The random generator of the specification. It takes a few lines in any language; a library's own does not."""
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _WORD
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
        yield z ^ (z >> 31)


# Results are kept: fitting to a budget builds the same family dozens of times, and finding 1024 primes takes 50 ms.
@functools.lru_cache(maxsize=64)
def _coefficients(num_hashes: int, seed: int) -> NDArray[np.int64]:
    random = split_mix_64(seed)
    used: set[int] = set()
    rows = []
    for _ in range(num_hashes):
        prime = (2**29 + (next(random) >> 35)) | 1
        while prime in used or not _is_prime(prime):
            prime = prime + 2 if prime + 2 < 2**30 else 2**29 + 1
        used.add(prime)
        high = 1 + next(random) % (prime - 1)
        low = 1 + next(random) % (prime - 1)
        rows.append((high, low, next(random) % prime, prime))
    coefficients = np.array(rows, dtype=np.int64)
    coefficients.setflags(write=False)
    return coefficients


def _is_prime(odd: int) -> bool:
    """The Miller–Rabin test. With these bases its answer is certain for every odd number below 3.2·10^9."""
    power = ((odd - 1) & (1 - odd)).bit_length() - 1  # odd - 1 = 2^power · rest
    for base in (2, 3, 5, 7):
        x = pow(base, (odd - 1) >> power, odd)
        if x in (1, odd - 1):
            continue
        for _ in range(power - 1):
            x = x * x % odd
            if x == odd - 1:
                break
        else:
            return False
    return True
