"""Ids → codes: dense hash encoding, the encodings the paper compares it with, and side features beside any of them.

Codes are computed for each batch anew; nothing is stored for an id.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from ..kernels import uses_kernels
from .hashing import HashFamily, kernel_uniform_codes, split_mix_64
from .id_batches import checked_ids
from .scheme import require_known
from .side_features import SideFeatures


class Encoder(nn.Module):
    """What every encoder offers beside `forward(ids) -> codes`."""

    code_dim: int
    """Numbers in a code."""
    mean_square: float
    """The mean square of such a number, by which the network scales its first layer."""
    open_vocabulary: bool

    @property
    def uniform_hashes(self) -> HashFamily | None:
        """The hashes, if the code is nothing but their buckets scaled to [-1, 1]: there are loops for such codes."""
        return None


class DenseHashEncoder(Encoder):
    """`num_hashes` (k) buckets of an id as real numbers (section 3.2): uniform in [-1, 1], or standard normal."""

    open_vocabulary = True

    def __init__(
        self,
        num_hashes: int = 1024,
        *,
        num_buckets: int = 1_000_000,
        distribution: Literal["uniform", "gaussian"] = "uniform",
        seed: int = 0,
    ) -> None:
        super().__init__()
        if distribution not in ("uniform", "gaussian"):
            raise ValueError(f"distribution is {distribution!r}; it must be 'uniform' or 'gaussian'")
        if distribution == "gaussian" and num_hashes % 2:
            raise ValueError(f"num_hashes is {num_hashes}; gaussian codes are made in pairs, so it must be even")
        if num_buckets < 2:
            raise ValueError(f"num_buckets is {num_buckets}; at least 2 are needed to tell ids apart")
        self.distribution = distribution
        self.hashes = HashFamily(num_hashes, num_buckets, seed)
        self.code_dim = num_hashes
        self.mean_square = 1 / 3 if distribution == "uniform" else 1.0

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 or int32 [...] -> float32 [..., num_hashes]."""
        ids = checked_ids(ids)
        num_buckets = self.hashes.num_buckets
        if self.distribution == "gaussian":
            return _box_muller(self.hashes(ids), num_buckets)
        if uses_kernels(ids):
            return kernel_uniform_codes(ids, self.hashes.coefficients, num_buckets)
        return self.hashes(ids).to(torch.float32) * (2 / (num_buckets - 1)) - 1

    @property
    def uniform_hashes(self) -> HashFamily | None:
        """All hashes, unless the codes are normal."""
        return self.hashes if self.distribution == "uniform" else None


def _box_muller(buckets: Tensor, num_buckets: int) -> Tensor:
    """Buckets [..., k] -> standard normal [..., k]. The ½ keeps the logarithm finite for bucket 0.

    In float64, since the logarithm of a float32 near u = 1 is wrong in the fifth digit. The cosine is written as a
    sine, since ONNX Runtime has no cosine in double precision.
    """
    u = (buckets.to(torch.float64) + 0.5) / num_buckets
    radius = torch.sqrt(-2 * torch.log(u[..., 0::2]))
    angle = 2 * math.pi * u[..., 1::2]
    pairs = torch.stack([radius * torch.sin(angle + math.pi / 2), radius * torch.sin(angle)], dim=-1)
    return pairs.flatten(-2).to(torch.float32)


class IdentityEncoder(Encoder):
    """The id itself, scaled to [0, 1]: unique, but one number only."""

    open_vocabulary = False
    code_dim = 1
    mean_square = 1 / 3

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., 1]."""
        require_known(ids, self.vocab_size)
        return (ids.to(torch.float64) / max(self.vocab_size - 1, 1)).to(torch.float32).unsqueeze(-1)


class BinaryEncoder(Encoder):
    """The ⌈log₂ vocab_size⌉ bits of the id, lowest first: unique, but neighbours look alike."""

    open_vocabulary = False
    mean_square = 1 / 2
    shifts: Tensor

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.code_dim = max(1, (vocab_size - 1).bit_length())
        self.register_buffer("shifts", torch.arange(self.code_dim), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., code_dim]."""
        require_known(ids, self.vocab_size)
        return ((ids.unsqueeze(-1) >> self.shifts) & 1).to(torch.float32)


class RandomFourierEncoder(Encoder):
    """√2·cos(ω·x + φ) of the scaled id x, with ω normal and φ uniform: the features used for coordinates in space.

    `scale` is the standard deviation of ω. With small values codes change slowly with the id, with large values they
    are noise. By default the finest feature turns once in about a hundredth of the vocabulary.
    """

    open_vocabulary = False
    mean_square = 1.0
    frequencies: Tensor
    phases: Tensor

    def __init__(self, vocab_size: int, num_features: int = 1024, *, scale: float = 200.0, seed: int = 0) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.code_dim = num_features
        # Normal numbers made as gaussian codes are: the same on every machine.
        normals = _box_muller(_uniform_integers(2 * num_features, seed), 2**30)
        self.register_buffer("frequencies", normals[:num_features] * scale)
        self.register_buffer(
            "phases", _uniform_integers(num_features, seed + 1).to(torch.float32) / 2**30 * 2 * math.pi
        )

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., num_features]."""
        require_known(ids, self.vocab_size)
        x = (ids.to(torch.float64) / max(self.vocab_size - 1, 1)).to(torch.float32).unsqueeze(-1)
        return math.sqrt(2) * torch.cos(x * self.frequencies + self.phases)


def _uniform_integers(count: int, seed: int) -> Tensor:
    """Integers below 2^30, the same everywhere."""
    random = split_mix_64(seed % 2**64)
    return torch.tensor([next(random) >> 34 for _ in range(count)])


class SideFeatureEncoder(Encoder):
    """The code of `encoder` with the side features of the id behind it (section 3.4)."""

    def __init__(self, encoder: Encoder, side_features: SideFeatures) -> None:
        super().__init__()
        self.encoder = encoder
        self.side_features = side_features
        self.code_dim = encoder.code_dim + side_features.code_dim
        self.mean_square = encoder.mean_square
        self.open_vocabulary = encoder.open_vocabulary

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., code_dim]."""
        return torch.cat([self.encoder(ids), self.side_features(ids)], dim=-1)


def encoder_to_compare(encoding: str, vocab_size: int | None, num_hashes: int, seed: int) -> Encoder | None:
    """An encoder of section 4.4; None if the encoding is the paper's own."""
    if encoding == "dense-hash":
        return None
    if encoding not in ("identity", "binary", "random-fourier"):
        raise ValueError(f"encoding is {encoding!r}; it must be one of dense-hash, identity, binary, random-fourier")
    if vocab_size is None:
        raise ValueError(f"the {encoding} encoding depends on the vocabulary; give vocab_size")
    if encoding == "identity":
        return IdentityEncoder(vocab_size)
    if encoding == "binary":
        return BinaryEncoder(vocab_size)
    return RandomFourierEncoder(vocab_size, num_hashes, seed=seed)
