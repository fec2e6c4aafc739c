"""The specified universal hash family: ids → buckets, to the bit (docs/encoding-spec.md, version 1).

Tables mix the bits of an id first (`mix_ids`); dense codes and routers hash the id as it is.

Nothing here may change once a model has been trained on it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..kernels import uses_kernels

ENCODING_VERSION = 1
_WORD = (1 << 64) - 1
_FIRST_FACTOR, _SECOND_FACTOR = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64  # as signed 64-bit numbers


class HashFamily(nn.Module):
    """`num_hashes` (k) functions from 64-bit ids to {0, …, `num_buckets` (m) - 1}, drawn from `seed` alone.

    `coefficients` is int64 [num_hashes, 4]: high, low, b, p. It is a buffer: it travels with the state dict and is
    never trained. The paper's Algorithm 2, with the repairs listed in the specification.

    `mixed` families hash `mix_ids(id)`. Tables need that: each function is a line modulo a prime, and a line sends ids
    in a row to few of a table's rows, or to all of them evenly, by the luck of its slope.
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
        """Int64 [...] -> int64 [..., num_hashes]."""
        if self.mixed:
            ids = mix_ids(ids)
        if uses_kernels(ids):
            return kernel_buckets(ids, self.coefficients, self.num_buckets)
        return torch_buckets(ids, self.coefficients, self.num_buckets)

    def forward(self, ids: Tensor) -> Tensor:
        """The same as `buckets`, so that the family is a module like any other."""
        return self.buckets(ids)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"num_hashes={self.num_hashes}, num_buckets={self.num_buckets}, seed={self.seed}, mixed={self.mixed}"


def derive_seed(seed: int, name: str) -> int:
    """A seed for one purpose (an expert router, a feature) that shares nothing with `seed` itself or other names."""
    from .ids import to_ids

    return next(split_mix_64((seed ^ int(to_ids(name))) & _WORD))


def mix_ids(ids: Tensor) -> Tensor:
    """Int64 [...] -> int64 [...]: another order of all 64-bit numbers, in which neighbours are far apart.

    It is the output function of SplitMix64. Different ids stay different. Plain torch operations, as `torch_buckets`.
    """
    # int64 products wrap around, as the function asks. `>>` copies the sign: the mask takes the copies away.
    z = (ids ^ ((ids >> 30) & ((1 << 34) - 1))) * _FIRST_FACTOR
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _SECOND_FACTOR
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def torch_buckets(ids: Tensor, coefficients: Tensor, num_buckets: int) -> Tensor:
    """The formula in plain torch operations: any device, and the form that ONNX and torch.export carry."""
    # `%`, `>>` and `&` survive ONNX; torch.fmod and torch.div(rounding_mode=…) do not. Every operand is non-negative
    # and every intermediate below 2^63, so signed arithmetic is exact.
    high, low, offset, prime = coefficients.unbind(-1)  # [num_hashes] each
    upper = ((ids >> 32) & 0xFFFFFFFF).unsqueeze(-1)
    lower = (ids & 0xFFFFFFFF).unsqueeze(-1)
    return (high * upper + low * lower + offset) % prime % num_buckets  # [..., num_hashes]


@torch.library.custom_op("tableless::buckets", mutates_args=(), device_types="cpu")
def kernel_buckets(ids: Tensor, coefficients: Tensor, num_buckets: int) -> Tensor:
    """The formula as one compiled loop, an operator that torch.compile and torch.export take as it is."""
    from ..kernels import hashing as loops

    out = torch.empty(*ids.shape, len(coefficients), dtype=torch.int64)
    loops.buckets(*_arrays(ids, coefficients), num_buckets, out.view(-1, len(coefficients)).numpy())
    return out


@kernel_buckets.register_fake
def _(ids: Tensor, coefficients: Tensor, num_buckets: int) -> Tensor:
    return torch.empty(*ids.shape, coefficients.shape[0], dtype=torch.int64, device=ids.device)


@torch.library.custom_op("tableless::uniform_codes", mutates_args=(), device_types="cpu")
def kernel_uniform_codes(ids: Tensor, coefficients: Tensor, num_buckets: int) -> Tensor:
    """Buckets scaled to [-1, 1] in float32 without storing them: a quarter of the memory traffic."""
    from ..kernels import hashing as loops

    out = torch.empty(*ids.shape, len(coefficients), dtype=torch.float32)
    loops.uniform_codes(*_arrays(ids, coefficients), num_buckets, out.view(-1, len(coefficients)).numpy())
    return out


@kernel_uniform_codes.register_fake
def _(ids: Tensor, coefficients: Tensor, num_buckets: int) -> Tensor:
    return torch.empty(*ids.shape, coefficients.shape[0], dtype=torch.float32, device=ids.device)


def _arrays(ids: Tensor, coefficients: Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return ids.to(torch.int64).contiguous().view(-1).numpy(), coefficients.contiguous().numpy()


def split_mix_64(seed: int) -> Iterator[int]:
    """The generator that the specification names: a few lines in any language, unlike a library's own."""
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _WORD
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
        yield z ^ (z >> 31)


# Kept because fitting to a budget builds the same family dozens of times, and finding 1024 primes takes 50 ms.
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
    """Miller–Rabin; these bases decide every odd number below 3.2·10^9."""
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
