"""How good an encoding is: the four properties of the paper's Table 2, measured as its appendix A defines them.

    for report in measure_encodings(100_000):
        print(report.name, report.unique, report.equally_similar, report.high_dimensional, report.high_entropy)

Every verdict follows from a measured figure and one of the limits below. Use at least a few dozen ids: with fewer the
verdicts mean little, since then any one-hot code is short, and two ids have only one distance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .encoders import BinaryEncoder, DenseHashEncoder, IdentityEncoder
from .hashing import HashFamily
from .ids import to_ids
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

# Double one-hot hashing with as many buckets as ids has a collision in 39 % of the draws (A.1). The probability that 20
# draws miss it is 0.00005. Dense hashing has fewer draws, because each one computes ids × hashes.
_ONE_HOT_DRAWS = 20
_DENSE_DRAWS = 8

# Values are counted in bins, which must be wide enough that the ids fill them. With 64 ids to a bin, chance lowers the
# entropy of evenly spread values by 0.8 %/ln(bins), at most 1.1 %. More than 256 bins would show nothing new.
_IDS_PER_BIN = 64
_MAX_BINS = 256

# How many numbers are in memory at a time: 2 MB of codes, and the temporary results made from them.
_CHUNK = 2**19

Encode = Callable[[Tensor], Tensor]
"""Ids int64 [n] -> codes [n, coordinates], under one draw of the hash functions."""


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


def paper_encodings(
    num_ids: int, *, num_hashes: int = 1024, num_buckets: int = 1_000_000
) -> list[OneHotEncoding | DenseEncoding]:
    """The rows of Table 2, ready to be measured."""
    if not 2 <= num_ids <= 2**29:
        raise ValueError(f"num_ids is {num_ids}; it must lie in [2, 2^29]: a comparison needs two ids")
    return [
        OneHotEncoding("one-hot", lambda _: _itself, num_buckets=num_ids, open_vocabulary=False, num_draws=1),
        OneHotEncoding("one-hot hash", lambda seed: HashFamily(1, num_ids, seed), num_buckets=num_ids),
        OneHotEncoding("double one-hot hash", lambda seed: HashFamily(2, num_ids, seed), num_buckets=num_ids),
        DenseEncoding("binary", lambda _: BinaryEncoder(num_ids), num_values=2, open_vocabulary=False, num_draws=1),
        DenseEncoding(
            "identity", lambda _: IdentityEncoder(num_ids), num_values=num_ids, open_vocabulary=False, num_draws=1
        ),
        DenseEncoding(
            "dense hash",
            lambda seed: DenseHashEncoder(num_hashes, num_buckets=num_buckets, seed=seed),
            num_values=num_buckets,
            low=-1.0,
        ),
    ]


def measure_encoding(encoding: OneHotEncoding | DenseEncoding, ids: Tensor, *, seed: int = 0) -> EncodingReport:
    """Measure one encoding for distinct `ids`, int64 [n] with n ≥ 2, with the draws `seed`, `seed` + 1, …

    If an encoding takes any id, collisions are also looked for among n strings. The numbers 0 … n - 1 alone would make
    linear hashes look too good: of all pairs at a given distance, usually either none collides or a large part does. So
    double hashing collides in at most 4 of n draws for numbers, and in the 39 % of appendix A.1 for strings.
    """
    seeds = range(seed, seed + encoding.num_draws)
    populations = [ids, _ids_of_strings(ids)] if encoding.open_vocabulary else [ids]
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


@dataclass(frozen=True)
class OneHotEncoding:
    """Codes with a single 1 in each block of `num_buckets` zeros. Only the positions of the ones are kept.

    `draw(seed)` encodes: ids [n] -> positions, int64 [n, blocks]. The measured figures are those of the whole codes.
    """

    name: str
    draw: Callable[[int], Encode]
    num_buckets: int
    open_vocabulary: bool = True
    num_draws: int = _ONE_HOT_DRAWS

    def distances(self, seed: int, pairs: Tensor) -> Tensor:
        """Ids [n, 2] -> distances [n]. A block in which the ones differ adds 2 to the squared distance."""
        left, right = self.draw(seed)(pairs).unbind(-2)  # [n, blocks] each
        return (2 * (left != right).sum(-1)).double().sqrt()

    def entropies(self, seed: int, ids: Tensor) -> tuple[Tensor, int]:
        """The entropy of each dimension in bits, [blocks · num_buckets], and how many dimensions are constant."""
        blocks = self.draw(seed)(ids).unbind(-1)
        counts = torch.cat([torch.bincount(block, minlength=self.num_buckets) for block in blocks])
        constant = (counts == 0) | (counts == len(ids))
        return _entropy_shares(torch.stack([counts, len(ids) - counts], dim=-1)), int(constant.sum())


@dataclass(frozen=True)
class DenseEncoding:
    """Codes made of numbers. Each number is one of `num_values` that are equally spaced in [`low`, `high`].

    `draw(seed)` encodes: ids [n] -> codes, float [n, code_dim]. It is called for a chunk of ids at a time.
    """

    name: str
    draw: Callable[[int], Encode]
    num_values: int
    low: float = 0.0
    high: float = 1.0
    open_vocabulary: bool = True
    num_draws: int = _DENSE_DRAWS

    def distances(self, seed: int, pairs: Tensor) -> Tensor:
        """Ids [n, 2] -> distances [n]."""
        encode = self.draw(seed)
        both = zip(_chunks(encode, pairs[:, 0]), _chunks(encode, pairs[:, 1]), strict=True)
        return torch.cat([(left.double() - right).norm(dim=-1) for left, right in both])

    def entropies(self, seed: int, ids: Tensor) -> tuple[Tensor, int]:
        """The entropy of each dimension as a share of the highest, [code_dim], and how many dimensions are constant.

        The possible values are divided into at most 256 bins of equal size. A value outside [`low`, `high`] counts for
        the first or the last bin.
        """
        num_bins = max(2, min(self.num_values, _MAX_BINS, len(ids) // _IDS_PER_BIN))
        # Value number v belongs to bin ⌊(v + ½) · scale⌋. With the ½ no value lies on the edge of a bin, where float32
        # would round it to either side.
        scale = num_bins / self.num_values
        step = (self.high - self.low) / (self.num_values - 1)
        counts, lowest, highest = torch.zeros(0, dtype=torch.int64), torch.empty(0), torch.empty(0)
        for codes in _chunks(self.draw(seed), ids):  # [rows, code_dim]
            if not len(counts):
                first_bin = torch.arange(codes.shape[-1]) * num_bins  # the bins of the dimensions follow each other
                counts, lowest, highest = counts.new_zeros(len(first_bin) * num_bins), codes[0], codes[0]
            bins = (codes * (scale / step) + (0.5 - self.low / step) * scale).long().clamp_(0, num_bins - 1)
            counts += torch.bincount((bins + first_bin).flatten(), minlength=len(counts))
            lowest, highest = torch.minimum(lowest, codes.amin(0)), torch.maximum(highest, codes.amax(0))
        return _entropy_shares(counts.view(-1, num_bins)), int((lowest == highest).sum())


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
        upto = min(code_dim, seen + max(1, _CHUNK // len(ids)))
        block = _columns(encode, ids, out=probe.new_empty(len(ids), upto - seen), start=seen).numpy()
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


def _itself(ids: Tensor) -> Tensor:
    return ids.unsqueeze(-1)


def _ids_of_strings(ids: Tensor) -> Tensor:
    """The ids of the strings "0", "1", …, one for each of `ids`. They are spread over all 64 bits."""
    return to_ids([b"%d" % number for number in ids.tolist()])


def _columns(encode: Encode, ids: Tensor, *, out: Tensor, start: int) -> Tensor:
    """Write coordinates `start`, `start` + 1, … of all codes to `out`, as many as it has columns."""
    # `out` is made before the chunks. Pieces that are cut from each chunk and joined later would lie in memory between
    # the chunks, so that freed chunks could not be used again. That took as much memory as all codes together.
    done = 0
    for codes in _chunks(encode, ids):
        out[done : done + len(codes)] = codes[:, start : start + out.shape[-1]]
        done += len(codes)
    return out


def _chunks(encode: Encode, ids: Tensor) -> Iterator[Tensor]:
    """The codes of `ids`, in chunks [rows, code_dim]."""
    rows = max(1, _CHUNK // encode(ids[:1]).shape[-1])
    return (encode(ids[start : start + rows]) for start in range(0, len(ids), rows))


def _entropy_shares(counts: Tensor) -> Tensor:
    """Counts [..., outcomes] -> entropy / its maximum [...]."""
    shares = counts / counts.sum(-1, keepdim=True, dtype=torch.float64)
    entropy = torch.special.entr(shares).sum(-1)
    return (entropy / math.log(counts.shape[-1])).clamp(0.0, 1.0)
