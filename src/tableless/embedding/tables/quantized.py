"""The quantized table: a row for each id, with 8, 4 or 2 bits for each number. Large recommenders serve such tables."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from ...kernels import uses_kernels
from ..budget import Budget, fit_to_budget, resolve_budget
from ..id_batches import checked_ids
from ..rounding import (
    LARGEST_HALF,
    HalfNumbers,
    bytes_for,
    pack_codes,
    require_half,
    straight_through,
    unpack_codes,
)
from ..scheme import INITIAL_STD, EmbeddingScheme, Precision, Served, normal, require_known, seeded
from .shared_rows import set_means

_BITS = (2, 4, 8)
# How much of the range from the lowest to the highest number of a row the codes cover, around its middle. Four values
# are nearer to most numbers if the highest and the lowest are cut. This share was best on validation data of
# MovieLens-1M, from .6 to 1; with 4 bits the whole range was.
_COVERED = {8: 1.0, 4: 1.0, 2: 0.8}
_CHUNK = 65_536  # rows that are coded at a time: their codes are 64-bit numbers on the way
# Of float16: the relative distance between neighbours (at most), its smallest number, and its smallest number with all
# digits.
_FINENESS, _SMALLEST_STEP, _SMALLEST_NORMAL = 2.0**-10, 2.0**-24, 2.0**-14


class QuantizedEmbedding(EmbeddingScheme):
    """A row of `embedding_dim` codes of 8, 4 or 2 `bits` for each id, and two float16 numbers: offset and step.

    A number of the vector is offset + step · code. At 32 dimensions an id takes 36, 20 or 12 bytes. Unless it is
    `packed`, the rows are float32 numbers that can be trained, and are rounded each time they are looked up.
    """

    open_vocabulary = False
    table: nn.Parameter
    codes: Tensor  # uint8 [vocab_size, bytes]
    ranges: HalfNumbers  # [vocab_size, 2], the offset and the step of each row

    def __init__(
        self,
        embedding_dim: int,
        *,
        vocab_size: int,
        bits: int = 8,
        packed: bool = False,
        initial_std: float = INITIAL_STD,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if bits not in _BITS:
            raise ValueError(f"bits is {bits}; it must be 8, 4 or 2")
        self.embedding_dim = embedding_dim
        self.vocab_size = vocab_size
        self.bits = bits
        self.rounds_rows = bits < 8  # with 8 bits next to nothing is lost
        self.packed = packed
        self.initial_std = initial_std
        self.seed = seed
        if packed:
            self.register_buffer("codes", torch.zeros(vocab_size, bytes_for(embedding_dim, bits), dtype=torch.uint8))
            self.ranges = HalfNumbers(vocab_size, 2)
        else:
            self.table = normal(vocab_size, embedding_dim, std=initial_std, generator=seeded(seed))

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        if not self.packed:
            require_known(ids, self.vocab_size)
            rows = F.embedding(ids, self.table)
            codes, ranges = _to_codes(rows, self.bits)
            return straight_through(rows, _to_floats(codes, ranges))
        ids, ranges = checked_ids(ids), self.ranges.numbers
        if uses_kernels(self.codes):
            look_up = kernel_quantized_rows if torch.compiler.is_compiling() else _look_up
            vectors = look_up(ids, self.codes, ranges, self.bits, self.embedding_dim)
        else:
            require_known(ids, self.vocab_size)
            vectors = _to_floats(unpack_codes(self.codes[ids], self.embedding_dim, self.bits), ranges[ids])
        return vectors.to(self.ranges.dtype)

    @torch.no_grad()
    def pack(self) -> None:
        """Keep the codes, and two numbers for each row; the float32 rows are gone."""
        if self.packed:
            return
        coded = [self._coded(rows) for rows in torch.split(self.table, _CHUNK)]
        self.register_buffer("codes", torch.cat([codes for codes, _ in coded]))
        self.ranges = HalfNumbers(self.vocab_size, 2).to(self.table)
        self.ranges.numbers.copy_(torch.cat([ranges for _, ranges in coded]))
        del self.table
        self.packed = True

    def _coded(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Some rows as they are stored."""
        codes, ranges = _to_codes(rows, self.bits)
        return pack_codes(codes, self.bits), ranges

    @torch.no_grad()
    def unpack(self) -> None:
        """Make the rows trainable again. They have the same codes, offsets and steps."""
        if not self.packed:
            return
        both = zip(torch.split(self.codes, _CHUNK), torch.split(self.ranges.numbers, _CHUNK), strict=True)
        rows = [_to_rows(unpack_codes(codes, self.embedding_dim, self.bits), own, self.bits) for codes, own in both]
        self.table = nn.Parameter(torch.cat(rows).to(self.ranges.dtype))
        del self.codes, self.ranges
        self.packed = False

    @torch.no_grad()
    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """Every row is taken over. Each number is rounded alone, so the metric does not matter."""
        require_half(rows)
        self.unpack()
        set_means(self.table, ids, rows, weights)
        return self, torch.zeros_like(ids, dtype=torch.bool)

    def served(self, precision: Precision, sample_ids: Tensor) -> Served:
        """The packed form, which need not round at every look-up."""
        return Served(self.stored())

    def exported(self) -> nn.Module:
        """The packed form: a file shall hold what is stored, and not float32 numbers to be rounded."""
        return self.stored()

    def part_of(self, name: str) -> str:
        """Offsets and steps are counted apart from codes."""
        return {"codes": "codes", "ranges.numbers": "scales"}.get(name, super().part_of(name))

    @classmethod
    def from_budget(cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0) -> Self:
        """The most bits that the budget pays for. A budget of parameters counts as four bytes for each of them."""
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size).in_bytes
        return fit_to_budget(
            lambda size: cls(embedding_dim, vocab_size=vocab_size, bits=_BITS[size], seed=seed),
            allowed,
            smallest=0,
            largest=len(_BITS) - 1,
        )


def _to_codes(rows: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Float [..., dim] -> codes, int64 [..., dim], and the offset and the step of each row, [..., 2].

    These are numbers that float16 has, but as float32: autocast and ONNX Runtime can do little with float16 itself.
    """
    rows, highest = rows.detach().float(), 2**bits - 1
    low, high = rows.amin(-1, keepdim=True), rows.amax(-1, keepdim=True)
    cut = (high - low) * ((1 - _COVERED[bits]) / 2)
    # Rounded before it is used: so the codes make up for what the offset has lost.
    offset = (low + cut).clamp(-LARGEST_HALF, LARGEST_HALF).half().float()
    # A step finer than float16 is at the offset would be of no use. With this limit, code 0 is always there.
    step = ((high - cut - offset) / highest).maximum(offset.abs() * _FINENESS)
    step = _rounded_up(step.clamp(_SMALLEST_STEP, LARGEST_HALF))
    codes = ((rows - offset) / step).round().clamp(0, highest).long()
    return codes, torch.cat([offset, step], -1)


def _rounded_up(numbers: Tensor) -> Tensor:
    """The next numbers that float16 has, of positive float32. A step rounded down would cut off the end of a row.

    A millionth more does not count, because a step that was found before shall be found again, in spite of rounding.
    """
    halves = numbers.half().float()
    next_halves = (halves + 0.6 * _FINENESS * halves.clamp(min=_SMALLEST_NORMAL)).clamp(max=LARGEST_HALF).half().float()
    # A product with .999999 would do, but the ONNX exporter takes it for a product with 1 and leaves it out.
    return torch.where(numbers - halves > 1e-6 * halves, next_halves, halves)


def _to_floats(codes: Tensor, ranges: Tensor) -> Tensor:
    """Codes [..., dim] and ranges [..., 2] -> float32 [..., dim]."""
    return ranges[..., :1].float() + ranges[..., 1:].float() * codes.float()


def _to_rows(codes: Tensor, ranges: Tensor, bits: int) -> Tensor:
    """Float32 rows that have these codes and ranges. If the ends of the range were cut, they are put back."""
    rows, highest = _to_floats(codes, ranges), 2**bits - 1
    beyond = highest * ranges[..., 1:].float() * ((1 / _COVERED[bits] - 1) / 2)
    return rows - beyond * (codes == 0) + beyond * (codes == highest)


def _look_up(ids: Tensor, codes: Tensor, ranges: Tensor, bits: int, embedding_dim: int) -> Tensor:
    """The packed look-up as one compiled loop: a row's codes become float32 numbers, and nothing else is written."""
    from ...kernels import few_bits

    require_known(ids, len(codes))
    out = torch.empty(*ids.shape, embedding_dim)
    loops = {8: few_bits.rows_of_bytes, 4: few_bits.rows_of_half_bytes, 2: few_bits.rows_of_quarter_bytes}
    flat, halves = ids.reshape(-1).contiguous(), ranges.view(torch.int16)
    loops[bits](flat.numpy(), codes.numpy(), halves.numpy(), out.view(-1, embedding_dim).numpy())
    return out


# As a torch operator, for torch.compile. It takes several times as long to call, so that it is not used elsewhere.
kernel_quantized_rows = torch.library.custom_op(
    "tableless::quantized_rows", _look_up, mutates_args=(), device_types="cpu"
)


@kernel_quantized_rows.register_fake
def _(ids: Tensor, codes: Tensor, ranges: Tensor, bits: int, embedding_dim: int) -> Tensor:
    return torch.empty(*ids.shape, embedding_dim, device=ids.device)
