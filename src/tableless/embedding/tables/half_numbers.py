"""Numbers that are stored as float16: scales of rows, codebooks, a rotation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from typing_extensions import Self

LARGEST_HALF = 65_504.0
"""The largest number that float16 has."""


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
