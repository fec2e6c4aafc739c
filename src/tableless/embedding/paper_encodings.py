"""The encodings of the paper's Table 2 in a form that can be measured (`diagnostics.py` measures them)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .encoders import BinaryEncoder, DenseHashEncoder, IdentityEncoder
from .hashing import HashFamily
from .ids import to_ids

# Double one-hot hashing with as many buckets as ids has a collision in 39 % of the draws (A.1). The probability that 20
# draws miss it is 0.00005. Dense hashing has fewer draws, because each one computes ids × hashes.
_ONE_HOT_DRAWS = 20
_DENSE_DRAWS = 8

# Values are counted in bins, which must be wide enough that the ids fill them. With 64 ids to a bin, chance lowers the
# entropy of evenly spread values by 0.8 %/ln(bins), at most 1.1 %. More than 256 bins would show nothing new.
_IDS_PER_BIN = 64
_MAX_BINS = 256

# How many numbers are in memory at a time: 2 MB of codes, and the temporary results made from them.
NUMBERS_AT_A_TIME = 2**19

Encode = Callable[[Tensor], Tensor]
"""Ids int64 [n] -> codes [n, coordinates], under one draw of the hash functions."""


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
        both = zip(chunks_of_codes(encode, pairs[:, 0]), chunks_of_codes(encode, pairs[:, 1]), strict=True)
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
        for codes in chunks_of_codes(self.draw(seed), ids):  # [rows, code_dim]
            if not len(counts):
                first_bin = torch.arange(codes.shape[-1]) * num_bins  # the bins of the dimensions follow each other
                counts, lowest, highest = counts.new_zeros(len(first_bin) * num_bins), codes[0], codes[0]
            bins = (codes * (scale / step) + (0.5 - self.low / step) * scale).long().clamp_(0, num_bins - 1)
            counts += torch.bincount((bins + first_bin).flatten(), minlength=len(counts))
            lowest, highest = torch.minimum(lowest, codes.amin(0)), torch.maximum(highest, codes.amax(0))
        return _entropy_shares(counts.view(-1, num_bins)), int((lowest == highest).sum())


def _itself(ids: Tensor) -> Tensor:
    return ids.unsqueeze(-1)


def ids_of_strings(ids: Tensor) -> Tensor:
    """The ids of the strings "0", "1", …, one for each of `ids`. They are spread over all 64 bits."""
    return to_ids([b"%d" % number for number in ids.tolist()])


def columns_of_codes(encode: Encode, ids: Tensor, *, out: Tensor, start: int) -> Tensor:
    """Write coordinates `start`, `start` + 1, … of all codes to `out`, as many as it has columns."""
    # `out` is made before the chunks. Pieces that are cut from each chunk and joined later would lie in memory between
    # the chunks, so that freed chunks could not be used again. That took as much memory as all codes together.
    done = 0
    for codes in chunks_of_codes(encode, ids):
        out[done : done + len(codes)] = codes[:, start : start + out.shape[-1]]
        done += len(codes)
    return out


def chunks_of_codes(encode: Encode, ids: Tensor) -> Iterator[Tensor]:
    """The codes of `ids`, in chunks [rows, code_dim]."""
    rows = max(1, NUMBERS_AT_A_TIME // encode(ids[:1]).shape[-1])
    return (encode(ids[start : start + rows]) for start in range(0, len(ids), rows))


def _entropy_shares(counts: Tensor) -> Tensor:
    """Counts [..., outcomes] -> entropy / its maximum [...]."""
    shares = counts / counts.sum(-1, keepdim=True, dtype=torch.float64)
    entropy = torch.special.entr(shares).sum(-1)
    return (entropy / math.log(counts.shape[-1])).clamp(0.0, 1.0)
