"""Numbers in few bits: how they are rounded, and how they lie in bytes.

A matrix is stored as integers with a scale for each row. The scale is a bfloat16, so that an integer times its scale is
exact in float32: the form that is trained and the form that is stored give the same numbers to the last bit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .packed_codes import pack_codes, unpack_codes

WEIGHT_BITS = (32, 16, 8, 7, 6, 5, 4, 3, 2)
"""Bits of a stored number: float32, bfloat16, or integers with a scale for each row."""

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
