"""RoundedMatrix: a matrix that is stored in few bits, in the two forms of its life."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from .rounding import bytes_for, pack_bits, rounded, to_floats, to_integers, unpack_bits

_STORED = ("numbers", "scale")  # the buffers that are bfloat16, whatever type the model around them is turned into


class RoundedMatrix(nn.Module):
    """A matrix [..., rows, columns], or a stack of them, in `bits` (16, or 8 and fewer) for each number.

    While it is trained it has float32 `values`, a parameter, which are rounded whenever they are used. Packed, it has
    `integers` and a `scale` for each row; with 16 bits it has `numbers`, which are bfloat16. Both forms give the same
    numbers. `values` says what it starts with; without them it is packed and starts with zeros, to be loaded. Unless it
    `rounds`, its values are used as they are until it is packed (finishing.py).
    """

    values: nn.Parameter
    integers: Tensor
    scale: Tensor
    numbers: Tensor
    _like: Tensor

    def __init__(self, shape: tuple[int, ...], *, bits: int, values: nn.Parameter | None = None) -> None:
        super().__init__()
        self.shape = shape
        self.bits = bits
        self.packed = values is None
        self.rounds = True
        # An empty tensor that follows `.half()` and `.to(...)`. It tells in which type to answer.
        self.register_buffer("_like", torch.empty(0), persistent=False)
        if values is not None:
            self.values = values
        elif bits == 16:
            self.register_buffer("numbers", torch.zeros(shape, dtype=torch.bfloat16))
        else:
            kind = torch.int8 if bits == 8 else torch.uint8
            self.register_buffer("integers", torch.zeros(*shape[:-1], bytes_for(shape[-1], bits), dtype=kind))
            self.register_buffer("scale", torch.zeros(shape[:-1], dtype=torch.bfloat16))

    def forward(self, dtype: torch.dtype | None = None) -> Tensor:
        """The whole matrix, rounded (if it `rounds`)."""
        dtype = dtype or self._like.dtype
        if not self.packed:
            return (rounded(self.values, self.bits) if self.rounds else self.values).to(dtype)
        return self.numbers.to(dtype) if self.bits == 16 else to_floats(self.as_integers(), self.scale).to(dtype)

    def rows(self, places: Tensor) -> Tensor:
        """Some rows [..., columns] of a matrix that is no stack, rounded."""
        if not self.packed:
            return rounded(F.embedding(places, self.values), self.bits)
        if self.bits == 16:
            return F.embedding(places, self.numbers).to(self._like.dtype)
        integers = unpack_bits(F.embedding(places, self.integers), self.bits, self.shape[-1])
        scale = F.embedding(places, self.scale.unsqueeze(-1)).squeeze(-1)
        return to_floats(integers, scale).to(self._like.dtype)

    def as_integers(self) -> Tensor:
        """Of a packed matrix with 8 bits or fewer: all its integers, as int8."""
        return unpack_bits(self.integers, self.bits, self.shape[-1])

    @torch.no_grad()
    def pack(self) -> None:
        """Round for good: only what is stored is left."""
        if self.packed:
            return
        values, self.packed = self.values, True
        del self.values
        if self.bits == 16:
            self.register_buffer("numbers", values.bfloat16())
            return
        integers, scale = to_integers(values, self.bits)
        self.register_buffer("integers", pack_bits(integers, self.bits))
        self.register_buffer("scale", scale)

    @torch.no_grad()
    def unpack(self) -> None:
        """Make the numbers trainable again. They stay the same, also after packing them once more."""
        if not self.packed:
            return
        values = self()
        for name in ("numbers", "integers", "scale"):
            self._buffers.pop(name, None)
        self.packed = False
        self.values = nn.Parameter(values)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = {name: self._buffers[name] for name in _STORED if self._buffers.get(name) is not None}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, tensor in before.items():
            after = self._buffers[name]
            if tensor is not None and after is not None and after.dtype != tensor.dtype:
                self._buffers[name] = tensor.to(after.device)
        return self

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{list(self.shape)}, bits={self.bits}, packed={self.packed}"


class RoundedLinear(nn.Module):
    """A linear map, or one for each of several experts, with weights of few bits and a float32 bias."""

    def __init__(self, weight: RoundedMatrix, bias: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight  # [outputs, inputs], or [num_experts, outputs, inputs]
        self.bias = bias  # [outputs], or [num_experts, outputs]

    def forward(self, rows: Tensor) -> Tensor:
        """[n, inputs] -> [n, outputs], or [num_experts, capacity, inputs] -> [num_experts, capacity, outputs]."""
        weight = self.weight(self.bias.dtype)
        if weight.ndim == 2:
            return F.linear(rows, weight, self.bias)
        return torch.baddbmm(self.bias.unsqueeze(1), rows, weight.mT)


Matrix = nn.Parameter | RoundedMatrix
"""A matrix in float32, or in fewer bits."""


def make_matrix(values: Callable[[], nn.Parameter], shape: tuple[int, ...], *, bits: int, packed: bool) -> Matrix:
    """A matrix that starts with these values; where it is packed they are not asked for, as it will be loaded."""
    if bits == 32:
        return values()
    return RoundedMatrix(shape, bits=bits, values=None if packed else values())


def all_of(matrix: Matrix) -> Tensor:
    """The whole matrix as it is stored."""
    return matrix() if isinstance(matrix, RoundedMatrix) else matrix


def rows_of(matrix: Matrix, places: Tensor) -> Tensor:
    """Some rows as they are stored."""
    return matrix.rows(places) if isinstance(matrix, RoundedMatrix) else F.embedding(places, matrix)


def values_of(matrix: Matrix) -> nn.Parameter:
    """What is trained of it: float numbers that are not rounded yet."""
    return matrix.values if isinstance(matrix, RoundedMatrix) else matrix


def pack_all(module: nn.Module) -> None:
    """Pack every matrix of few bits in a module."""
    for part in module.modules():
        if isinstance(part, RoundedMatrix):
            part.pack()


def unpack_all(module: nn.Module) -> None:
    """Make every matrix of few bits in a module trainable again."""
    for part in module.modules():
        if isinstance(part, RoundedMatrix):
            part.unpack()
