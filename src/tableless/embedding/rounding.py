"""Numbers in few bits: how they are rounded, and how they lie in bytes.

A matrix is stored as integers with a scale for each row. The scale is a bfloat16, so that an integer times its scale is
exact in float32: the form that is trained and the form that is stored give the same numbers to the last bit.

Codes are integers from 0 on. Those of an id stand one after the other, the lowest bit first, and begin with a whole
byte. So it is in faiss. `HalfNumbers` are stored as float16: scales of rows, codebooks, a rotation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

WEIGHT_BITS = (32, 16, 8, 7, 6, 5, 4, 3, 2)
"""Bits of a stored number: float32, bfloat16, or integers with a scale for each row."""

LARGEST_HALF = 65_504.0
"""The largest number that float16 has."""

_LEAST_SCALE = 1e-30  # of a row of zeros


def require_bits(name: str, bits: int) -> None:
    """Refuse a number of bits in which nothing can be stored."""
    if bits not in WEIGHT_BITS:
        raise ValueError(f"{name} is {bits}; it must be one of {', '.join(map(str, WEIGHT_BITS))}")


def largest_integer(bits: int) -> int:
    """Integers go from minus this number to this number, so that zero is among them and both signs are alike."""
    return 2 ** (bits - 1) - 1


def to_integers(matrix: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Float [..., rows, columns] -> int8 of the same shape and the bfloat16 scale of each row, [..., rows].

    The largest number of a row becomes the largest integer. So rounding a second time changes nothing.
    """
    exact, most = matrix.detach().float(), largest_integer(bits)
    scale = (exact.abs().amax(-1) / most).clamp(min=_LEAST_SCALE).bfloat16()
    integers = (exact / scale.float().unsqueeze(-1)).round().clamp(-most, most)
    return integers.to(torch.int8), scale


def to_floats(integers: Tensor, scale: Tensor) -> Tensor:
    """Integers [..., rows, columns] and the scale of each row [..., rows] -> float32."""
    return integers.float() * scale.float().unsqueeze(-1)


def rounded(matrix: Tensor, bits: int) -> Tensor:
    """The numbers as they will be stored, in the type that they have. Gradients pass as if nothing had been rounded."""
    return _Rounded.apply(matrix, bits)  # type: ignore[no-untyped-call]


def _round(matrix: Tensor, bits: int) -> Tensor:
    stored = matrix.bfloat16() if bits == 16 else to_floats(*to_integers(matrix, bits))
    return stored.to(matrix.dtype)


class _Rounded(torch.autograd.Function):
    """Straight-through: a gradient of rounding would be zero nearly everywhere."""

    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor, bits: int) -> Tensor:
        return _round(matrix, bits)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


def pack_bits(integers: Tensor, bits: int) -> Tensor:
    """Int8 [..., columns] -> uint8 [..., bytes]: the integers of a row, plus the largest one, one after the other.

    The lowest bit comes first. Eight bits stay int8 as they are.
    """
    return integers if bits == 8 else pack_codes(integers.long() + largest_integer(bits), bits)


def unpack_bits(packed: Tensor, bits: int, columns: int) -> Tensor:
    """What `pack_bits` was given: int8 [..., columns]."""
    if bits == 8:
        return packed
    return (unpack_codes(packed, columns, bits) - largest_integer(bits)).to(torch.int8)


def bytes_for(count: int, bits: int) -> int:
    """The bytes that `count` codes of so many bits take."""
    return -(-count * bits // 8)


def pack_codes(codes: Tensor, bits: int) -> Tensor:
    """Int64 [..., count], each from 0 to 2^bits - 1 -> uint8 [..., bytes]."""
    count = codes.shape[-1]
    first, shift, num_bytes = _places(count, bits, codes.device)
    shifted = codes << shift
    # A code may reach into the bytes that follow. The last of those may not exist; nothing is written there.
    out = codes.new_zeros(*codes.shape[:-1], bytes_for(count, bits) + num_bytes)
    for place in range(num_bytes):  # no two codes have a bit in common, so that a sum is enough
        out.index_add_(-1, first + place, (shifted >> (8 * place)) & 255)
    return out[..., : bytes_for(count, bits)].to(torch.uint8)


def unpack_codes(packed: Tensor, count: int, bits: int) -> Tensor:
    """What `pack_codes` was given: uint8 [..., bytes] -> int64 [..., count]. These are plain torch operations."""
    first, shift, num_bytes = _places(count, bits, packed.device)
    last = packed.shape[-1] - 1
    whole = packed[..., first].long()
    for place in range(1, num_bytes):  # bits beyond the last byte do not belong to the code, and are masked below
        whole = whole | (packed[..., (first + place).clamp(max=last)].long() << (8 * place))
    return torch.bitwise_right_shift(whole, shift) & (2**bits - 1)  # `>>` with a tensor is not in ONNX


def _places(count: int, bits: int, device: torch.device) -> tuple[Tensor, Tensor, int]:
    """The byte in which each code begins, at which of its bits, and how many bytes a code reaches into at most."""
    begin = torch.arange(count, device=device) * bits
    most = max(start * bits % 8 for start in range(min(count, 8))) + bits
    return begin // 8, begin % 8, -(-most // 8)


class HalfNumbers(nn.Module):
    """A tensor in the two forms of its life.

    While it is trained it has `values`, a float32 parameter that is rounded whenever it is used. Packed, it has
    `numbers`, a float16 buffer. Both give the same numbers. Without `values` it is packed and has zeros, to be loaded.
    """

    values: nn.Parameter
    numbers: Tensor
    _like: Tensor

    def __init__(self, *shape: int, values: nn.Parameter | None = None) -> None:
        super().__init__()
        # An empty tensor that follows `.half()` and `.to(…)`: it says in which type to answer.
        self.register_buffer("_like", torch.empty(0), persistent=False)
        if values is None:
            self.register_buffer("numbers", torch.zeros(shape, dtype=torch.float16))
        else:
            self.values = values

    @property
    def packed(self) -> bool:
        """Is it in the form that is stored?"""
        return "numbers" in self._buffers

    @property
    def dtype(self) -> torch.dtype:
        """The type in which it answers."""
        return self._like.dtype

    def forward(self) -> Tensor:
        """All numbers as they are stored, in the type that the model around them has."""
        if self.packed:
            return self.numbers.to(self.dtype)
        return straight_through(self.values, self.values.detach().half())

    @torch.no_grad()
    def pack(self) -> None:
        """Round for good."""
        if not self.packed:
            numbers = self.values.half()
            del self.values
            self.register_buffer("numbers", numbers)

    @torch.no_grad()
    def unpack(self) -> None:
        """Make the numbers trainable again. They stay the same."""
        if self.packed:
            values = nn.Parameter(self().clone())
            del self.numbers
            self.values = values

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = self._buffers.get("numbers")
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if before is not None:  # it may have been moved, but it stays float16
            self.numbers = before.to(self._like.device)
        return self


def straight_through(exact: Tensor, stored: Tensor) -> Tensor:
    """The value of `stored`, to the bit, with the gradient of `exact`: rounding itself has a gradient of zero."""
    stored = stored.to(exact.dtype)
    return stored + (exact - exact.detach()) if exact.requires_grad else stored


def require_half(rows: Tensor) -> None:
    """Refuse rows with numbers that float16 does not have."""
    if rows.numel() and not float(rows.abs().max()) <= LARGEST_HALF:
        raise ValueError(
            f"the rows have numbers up to {float(rows.abs().max()):g}; {LARGEST_HALF:g} is the largest that can be "
            "stored here. Divide the rows by a number first"
        )
