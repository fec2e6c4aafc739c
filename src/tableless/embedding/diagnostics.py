"""How good an encoding is: the four properties of the paper's Table 2, measured as its appendix A defines them.

    for report in measure_encodings(100_000):
        print(report.name, report.unique, report.equally_similar, report.high_dimensional, report.high_entropy)

Every verdict follows from a measured figure and one of the limits below. Use at least a few dozen ids: with fewer the
verdicts mean little, since then any one-hot code is short, and two ids have only one distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .paper_encodings import (
    NUMBERS_AT_A_TIME,
    DenseEncoding,
    Encode,
    OneHotEncoding,
    columns_of_codes,
    ids_of_strings,
    paper_encodings,
)
from .scheme import seeded

# A.1 asks that a collision is nearly impossible. So a single draw of the hash functions with a collision is too many.
MAX_COLLIDING_DRAWS = 0.0
# A.2 asks that every pair has the same expected distance. We measure a mean over a few draws, which varies by chance:
# for dense hashing by 0.6/√(num_hashes · draws), that is 0.7 % for 1024 hashes and 7.5 % for 8; for one-hot hashing by
# 1/√(buckets · draws), 0.07 % for 100,000 buckets. Codes without the property vary far more: binary codes of 100,000
# ids by 44 %, the identity by 160 %.
MAX_DISTANCE_SPREAD = 0.10
# A.3 calls a space of more than 100 dimensions high.
MAX_LOW_DIM = 100
# A.4 asks for the highest entropy. Binary codes miss it if the number of ids is not a power of two, because the highest
# bit is then more often 0: they have 99 % for 100,000 ids, and 86 % at worst (17 ids). One-hot codes of 10 or more ids
# are below 50 %.
MIN_MEAN_ENTROPY = 0.80


@dataclass(frozen=True)
class EncodingReport:
    """The measured figures of one encoding, and the verdicts that follow from them."""

    name: str
    num_ids: int
    num_draws: int
    """How many draws of the hash functions were measured; 1 for an encoding that draws nothing."""
    colliding_ids: float
    """The share of the ids that have the same code as another id, averaged over draws."""
    colliding_draws: float
    """The share of the draws in which at least two ids have the same code."""
    mean_distance: float
    distance_spread: float
    """How much the distance of two codes (averaged over draws) varies over pairs: standard deviation / mean."""
    code_dim: int
    mean_entropy: float
    """The entropy as a share of the highest possible one, averaged over dimensions."""
    lowest_entropy: float
    constant_dims: int
    """Dimensions in which all ids have the same value."""

    @property
    def unique(self) -> bool:
        """A.1: no two ids have the same code."""
        return self.colliding_draws <= MAX_COLLIDING_DRAWS

    @property
    def equally_similar(self) -> bool:
        """A.2: on average over draws, all pairs of codes are equally far apart, and not at distance zero."""
        return self.mean_distance > 0 and self.distance_spread <= MAX_DISTANCE_SPREAD

    @property
    def high_dimensional(self) -> bool:
        """A.3: codes have many dimensions."""
        return self.code_dim > MAX_LOW_DIM

    @property
    def high_entropy(self) -> bool:
        """A.4: the entropy is high, and no dimension is constant. (A mean over 1024 would not show a constant one.)"""
        return self.mean_entropy >= MIN_MEAN_ENTROPY and self.constant_dims == 0

    def as_dict(self) -> dict[str, Any]:
        """Figures and verdicts as plain values."""
        verdicts = ("unique", "equally_similar", "high_dimensional", "high_entropy")
        return asdict(self) | {verdict: getattr(self, verdict) for verdict in verdicts}


def measure_encodings(
    num_ids: int = 100_000, *, num_hashes: int = 1024, num_buckets: int = 1_000_000, seed: int = 0
) -> list[EncodingReport]:
    """A report on each row of Table 2, in its order, for the ids 0 … `num_ids` - 1.

    `num_hashes` and `num_buckets` are those of the dense hash. As in appendix A, the hashed one-hot codes have as many
    buckets as there are ids.
    """
    encodings = paper_encodings(num_ids, num_hashes=num_hashes, num_buckets=num_buckets)
    ids = torch.arange(num_ids)
    return [measure_encoding(encoding, ids, seed=seed) for encoding in encodings]


def measure_encoding(encoding: OneHotEncoding | DenseEncoding, ids: Tensor, *, seed: int = 0) -> EncodingReport:
    """Measure one encoding for distinct `ids`, int64 [n] with n ≥ 2, with the draws `seed`, `seed` + 1, …

    If an encoding takes any id, collisions are also looked for among n strings. The numbers 0 … n - 1 alone would make
    linear hashes look too good: of all pairs at a given distance, usually either none collides or a large part does. So
    double hashing collides in at most 4 of n draws for numbers, and in the 39 % of appendix A.1 for strings.
    """
    seeds = range(seed, seed + encoding.num_draws)
    populations = [ids, ids_of_strings(ids)] if encoding.open_vocabulary else [ids]
    colliding = [[count_colliding_ids(encoding.draw(each), some) for some in populations] for each in seeds]
    distances = mean_distances(encoding, ids[sample_pairs(len(ids), seed=seed)], seeds)
    entropies, constant_dims = encoding.entropies(seed, ids)
    return EncodingReport(
        name=encoding.name,
        num_ids=len(ids),
        num_draws=encoding.num_draws,
        colliding_ids=sum(map(sum, colliding)) / (len(seeds) * len(populations) * len(ids)),
        colliding_draws=sum(map(any, colliding)) / len(seeds),
        mean_distance=distances.mean().item(),
        distance_spread=spread(distances),
        code_dim=len(entropies),
        mean_entropy=entropies.mean().item(),
        lowest_entropy=entropies.min().item(),
        constant_dims=constant_dims,
    )


def count_colliding_ids(encode: Encode, ids: Tensor) -> int:
    """How many of the distinct `ids`, int64 [n], have exactly the same code as another.

    Ids are grouped by the first coordinate of their codes. Each group is split by the second coordinate, and so on,
    until every id is alone or no coordinate is left. Whole codes are compared, but mostly two coordinates are enough.
    """
    probe = encode(ids[:1])
    code_dim = probe.shape[-1]
    groups = np.zeros(len(ids), dtype=np.int64)
    seen = 0
    while len(ids) and seen < code_dim:
        upto = min(code_dim, seen + max(1, NUMBERS_AT_A_TIME // len(ids)))
        block = columns_of_codes(encode, ids, out=probe.new_empty(len(ids), upto - seen), start=seen).numpy()
        for column in range(upto - seen):
            values = np.unique(block[:, column], return_inverse=True)[1]
            _, groups, sizes = np.unique(groups * len(ids) + values, return_inverse=True, return_counts=True)
            together = sizes[groups] > 1
            if not together.all():
                ids, groups, block = ids[torch.from_numpy(together)], groups[together], block[together]
        seen = upto
    return len(ids)


def sample_pairs(num_ids: int, *, per_kind: int = 256, seed: int = 0) -> Tensor:
    """Positions [3 · per_kind, 2] of pairs to compare: neighbours, ids a power of two apart, and random pairs.

    The first two kinds show the faults of codes that are made by arithmetic. Random pairs seldom do.
    """
    generator = seeded(seed)
    powers = 2 ** (torch.arange(per_kind) % (num_ids - 1).bit_length())
    gaps = torch.cat([torch.ones_like(powers), powers])
    lower = (torch.rand(len(gaps), generator=generator, dtype=torch.float64) * (num_ids - gaps)).long()
    left = torch.randint(num_ids, (per_kind,), generator=generator)
    right = (left + torch.randint(1, num_ids, (per_kind,), generator=generator)) % num_ids
    return torch.cat([torch.stack([lower, lower + gaps], dim=-1), torch.stack([left, right], dim=-1)])


def mean_distances(encoding: OneHotEncoding | DenseEncoding, pairs: Tensor, seeds: Sequence[int]) -> Tensor:
    """The Euclidean distance between the codes of each pair of ids, [n, 2] -> float64 [n], averaged over draws.

    In a single draw two ids may collide by chance, which brings their codes closer. A.2 is about the mean over draws.
    """
    return torch.stack([encoding.distances(seed, pairs) for seed in seeds]).mean(0)


def spread(values: Tensor) -> float:
    """Standard deviation / mean of numbers ≥ 0. It is 0 if all of them are zero."""
    mean = values.mean().item()
    return values.std(correction=0).item() / mean if mean else 0.0
