"""`IdRows`: which row belongs to an id, without a list of ids. With thousands of ids or more it takes 2.6 bits per id.

The format can never change, because saved models depend on it. It is a minimal perfect hash: a table of *cells*, of
which each id owns one. The row of an id is the number of owned cells before its own.

**Layout**, from n = `num_ids` alone, in whole numbers (⌊ ⌋ rounds down, ⌈ ⌉ rounds up):

- The cells are S segments of equal length. S = 3 if n ≤ 1000, else S = ⌊n^(3/8)⌋, the largest S with S⁸ ≤ n³.
- At least min(⌈6·n / 5⌉, ⌈(1101·R + 2720)·n / (1000·R)⌉) cells are needed, where R = ⌊(256·n)^(1/4)⌋.
- So W = ⌈S·⌈needed / S⌉ / 32⌉ words of 64 bits are taken, and a segment gets L = ⌊32·W / S⌋ cells.
- Cell c, from 0 to S·L − 1, is the bits 2·(c mod 32) and 2·(c mod 32) + 1 of word ⌊c / 32⌋. Bit 0 is the lowest.

**What is stored**: `cells`, int64 [W], the words; `ranks`, int32 [⌈W / 8⌉], for each block of 256 cells how many cells
before the block are owned; `key`, int64, a part of the hash. A cell is 0, 1 or 2 if an id owns it, and 3 if not.

**The row of an id**, in unsigned 64-bit arithmetic, in which a product keeps its lower 64 bits:

    z ← id xor key;  z ← (z xor z>>30)·0xBF58476D1CE4E5B9;  z ← (z xor z>>27)·0x94D049BB133111EB;  z ← z xor z>>31
    s ← ((z >> 32)·(4·S − 5)) >> 34
    cell 0 ← s·L               + ((((z·0x9E3779B97F4A7C15) >> 32)·L) >> 32)
    cell 1 ← (s + 1)·L         + (((z mod 2^32)·L) >> 32)
    cell 2 ← ((s + 2) mod S)·L + ((((z·0xD1342543DE82EF95) >> 32)·L) >> 32)
    own    ← that one of the cells 0, 1, 2 whose number is the sum of their three values, mod 3
    row    ← ranks[⌊own / 256⌋] + how many of the cells from 256·⌊own / 256⌋ to own − 1 are not 3
    row    ← min(max(row, 0), n − 1)

The last line is for ids that were not put in, and for damaged files.

**How it is built** is not part of the format: any cells will do that give each id a row of its own. We take keys from
SplitMix64, started with `seed`, until one *peels*: all ids can be removed one by one, each at a moment when one of its
cells is in no other id that is left. That cell becomes its own. Afterwards, in reverse order, each own cell gets the
value that makes the sum right.

Botelho, Pagh and Ziviani built perfect hashes in this way, on random hypergraphs. The segments are those of the binary
fuse filters of Graf and Lemire, after Walzer. But theirs are a line, and ours a circle with a gap: no id begins at the
last segment, and a quarter less at the one before it. Peeling begins at the gap, as it does at the two ends of a line.
A gap of 1¼ segments is enough, and two ends cost 2. So thousands of ids need 2 to 3 % fewer cells; with millions of ids
there is no difference to speak of.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import islice
from math import isqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..kernels import uses_kernels
from .hashing import mix_ids, split_mix_64
from .id_batches import checked_ids

MOST_IDS = 2**31 - 1  # ranks are 32-bit numbers
_LOW = (1 << 32) - 1
_ONE, _OTHER = 0x9E3779B97F4A7C15 - 2**64, 0xD1342543DE82EF95 - 2**64  # as signed 64-bit numbers
_LOWER_BITS, _PAIRS, _NIBBLES = 0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F
_BLOCK = 8  # words, that is 256 cells


class IdRows(nn.Module):
    """Finds the row of each of up to `num_ids` ids, which it does not store.

    All sizes follow from `num_ids`, and nothing is trained. An id that was not put in gets the row of another id:
    nothing here tells them apart.

    Args:
        num_ids: How many ids there is room for.
        seed: The hash functions are drawn from it.

    Raises:
        ValueError: `num_ids` is outside [1, 2^31 - 1].

    Example:
        ```python
        from tableless import to_ids
        from tableless.embedding.id_rows import IdRows

        rows = IdRows(num_ids=3)
        print(sorted(rows.build(to_ids(["ann", "ben", "eve"])).tolist()))  # [0, 1, 2]
        print(int(rows(to_ids("ben"))), rows.num_bytes)
        ```
    """

    cells: Tensor
    ranks: Tensor
    key: Tensor

    def __init__(self, num_ids: int, seed: int = 0) -> None:
        super().__init__()
        if not 1 <= num_ids <= MOST_IDS:
            raise ValueError(f"num_ids is {num_ids}; it must lie in [1, 2^31 - 1]; for more ids use several IdRows")
        self.num_ids, self.seed = num_ids, seed
        self.num_segments, self.segment_length, num_words = _layout(num_ids)
        self.sizes = num_ids, self.num_segments, self.segment_length
        # Until ids are put in, every cell counts as owned. So any id has some row, and other ids mostly have others.
        self.register_buffer("cells", torch.zeros(num_words, dtype=torch.int64))
        self.register_buffer("ranks", 32 * _BLOCK * torch.arange(-(-num_words // _BLOCK), dtype=torch.int32))
        self.register_buffer("key", torch.tensor(0))

    @torch.no_grad()
    def build(self, ids: Tensor) -> Tensor:
        """Put ids in. Those that were there before are forgotten.

        Args:
            ids: Distinct ids, int64 or int32, at most `num_ids`.

        Returns:
            The row of each id, int64, in the shape of `ids`. With m ids the rows are 0 … m - 1, in no order.

        Raises:
            ValueError: An id is there twice, or there are more than `num_ids`.
            RuntimeError: No key was found. That does not happen by chance.
        """
        flat = checked_ids(ids).reshape(-1).cpu().contiguous()
        if len(flat) > self.num_ids:
            raise ValueError(f"{len(flat)} ids are more than num_ids={self.num_ids}; make an IdRows({len(flat)})")
        self._write(*self._peeled(flat))
        return self(flat.to(self.cells.device)).view(ids.shape).to(ids.device)

    def forward(self, ids: Tensor) -> Tensor:
        """The rows of ids: int64 or int32 [...] -> int64 [...], each in [0, num_ids)."""
        ids = checked_ids(ids)
        if not uses_kernels(ids):
            return torch_rows(ids, self.key, self.cells, self.ranks, self.sizes)
        is_traced = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        if is_traced or torch.compiler.is_compiling() or type(ids) is not Tensor:
            return kernel_rows(ids, self.key, self.cells, self.ranks, self.sizes)
        # Not by the operator: to call one takes longer than to find a hundred rows.
        return _found(ids, self.key, self.cells, self.ranks, self.sizes)

    @property
    def num_bytes(self) -> int:
        """Bytes of all that is stored."""
        return sum(buffer.nbytes for buffer in self.buffers())

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"num_ids={self.num_ids}, seed={self.seed}"

    def _peeled(self, ids: Tensor) -> tuple[int, NDArray[np.uint64], NDArray[np.uint8]]:
        """A key that peels, and the hashes in the order in which they were peeled, with the side of each."""
        from ..kernels import id_rows as loops

        hashes, sides = np.empty(len(ids), np.uint64), np.empty(len(ids), np.uint8)
        # A key peels with a chance of 5 to 40 % if there are thousands of ids, and mostly if there are millions.
        keys = islice(split_mix_64(self.seed % 2**64), max(100, 10**7 // self.num_ids))
        for attempt, unsigned in enumerate(keys):
            key = unsigned - 2**64 if unsigned >= 2**63 else unsigned
            loops.sort_hashes(ids.numpy(), key, self.num_segments, hashes)
            if loops.peel(hashes, sides, self.num_segments, self.segment_length):
                return key, hashes, sides
            if attempt == 0:  # equal ids never peel, so it is enough to look for them now
                _require_distinct(ids.numpy())
        raise RuntimeError(f"no key was found for {len(ids)} ids with seed {self.seed}; give IdRows another seed")

    def _write(self, key: int, hashes: NDArray[np.uint64], sides: NDArray[np.uint8]) -> None:
        from ..kernels import id_rows as loops

        cells, ranks = np.empty(self.cells.shape, np.int64), np.empty(self.ranks.shape, np.int32)
        loops.write_cells(hashes, sides, self.num_segments, self.segment_length, cells, ranks)
        self.key.fill_(key)
        self.cells.copy_(torch.from_numpy(cells))
        self.ranks.copy_(torch.from_numpy(ranks))


def torch_rows(ids: Tensor, key: Tensor, cells: Tensor, ranks: Tensor, sizes: Sequence[int]) -> Tensor:
    """The format in plain torch operations, for any device, and for programs exported by ONNX or torch.export."""
    z, (num_ids, num_segments, length) = mix_ids(ids ^ key), sizes
    segment = (_upper(z) * (4 * num_segments - 5)) >> 34
    first = segment * length + ((_upper(z * _ONE) * length) >> 32)
    second = (segment + 1) * length + (((z & _LOW) * length) >> 32)
    third = ((segment + 2) % num_segments) * length + ((_upper(z * _OTHER) * length) >> 32)
    side = (_value(cells, first) + _value(cells, second) + _value(cells, third)) % 3
    own = torch.where(side == 0, first, torch.where(side == 1, second, third))
    row = ranks[own >> 8] + (own & 255) - _free_before(own, cells)
    return row.clamp(0, num_ids - 1)


def _free_before(own: Tensor, cells: Tensor) -> Tensor:
    """How many cells before a cell, in its block, belong to no id: int64 [...] -> int64 [...]."""
    own_word = (own >> 5).unsqueeze(-1)
    words = ((own >> 8) * _BLOCK).unsqueeze(-1) + torch.arange(_BLOCK, device=own.device)  # [..., 8]
    values = cells[words.minimum(own_word)]  # words after the own one need not exist; the mask takes them away
    before = (torch.bitwise_left_shift(torch.ones_like(own), (own & 31) * 2) - 1).unsqueeze(-1)
    mask = torch.where(words < own_word, -1, torch.where(words == own_word, before, 0))
    free = values & (values >> 1) & _LOWER_BITS & mask  # one bit for each cell that is 3
    free = (free & _PAIRS) + ((free >> 2) & _PAIRS)
    free = (free + (free >> 4)) & _NIBBLES  # in each byte the count of four cells
    # Not `.sum(-1)`: ONNX Runtime adds up int64s as floats, and gives a wrong shape for an empty batch.
    bytes_ = functools.reduce(torch.add, free.unbind(-1))
    return ((bytes_ * 0x0101010101010101) >> 56) & 255  # the highest byte of the product is the sum of all bytes


def _upper(number: Tensor) -> Tensor:
    return (number >> 32) & _LOW


def _value(cells: Tensor, cell: Tensor) -> Tensor:
    # ONNX knows this function, but not the operator >> of two tensors. Copies of the sign are too far left to matter.
    return torch.bitwise_right_shift(cells[cell >> 5], (cell & 31) * 2) & 3


@torch.library.custom_op("tableless::id_rows", mutates_args=(), device_types="cpu")
def kernel_rows(ids: Tensor, key: Tensor, cells: Tensor, ranks: Tensor, sizes: Sequence[int]) -> Tensor:
    """The format as one compiled loop. It is a torch operator, so that torch.compile knows it."""
    return _found(ids, key, cells, ranks, sizes)


@kernel_rows.register_fake
def _(ids: Tensor, key: Tensor, cells: Tensor, ranks: Tensor, sizes: Sequence[int]) -> Tensor:
    return torch.empty_like(ids, memory_format=torch.contiguous_format)


def _found(ids: Tensor, key: Tensor, cells: Tensor, ranks: Tensor, sizes: Sequence[int]) -> Tensor:
    from ..kernels import id_rows as loops

    # As few torch calls as will do: for a hundred ids, they take longer than the loop.
    ids, (num_ids, num_segments, length) = ids.contiguous(), sizes
    out = torch.empty_like(ids)
    flat, places = ids.numpy().reshape(-1), out.numpy().reshape(-1)
    loops.find_rows(flat, int(key), cells.numpy(), ranks.numpy(), num_ids, num_segments, length, places)
    return out


def _require_distinct(ids: NDArray[np.int64]) -> None:
    ordered = np.sort(ids)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated):
        first, second = np.flatnonzero(ids == repeated[0])[:2]
        raise ValueError(
            f"the id {repeated[0]} is at position {first} and again at {second}; an id has one row, so give each id "
            "once, as ids.unique() does"
        )


def _layout(num_ids: int) -> tuple[int, int, int]:
    """The number of segments, the cells in each of them, and the number of words, by the rules above."""
    num_segments = 3 if num_ids <= 1000 else isqrt(isqrt(isqrt(num_ids**3)))
    root = isqrt(isqrt(256 * num_ids))
    needed = min(-(-6 * num_ids // 5), -(-(1101 * root + 2720) * num_ids // (1000 * root)))
    num_words = -(-num_segments * -(-needed // num_segments) // 32)
    return num_segments, 32 * num_words // num_segments, num_words
