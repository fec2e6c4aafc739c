"""The activations of the network, and a Mish with one exponential: torch's own is most of the cost of a small layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .hashing import uses_kernels


def mish(x: Tensor) -> Tensor:
    """x·tanh(ln(1 + eˣ)): a compiled loop on the CPU, torch's elsewhere and where torch compiles."""
    if not uses_kernels(x) or torch.compiler.is_compiling() or x.dtype != torch.float32:
        return F.mish(x)
    return _Mish.apply(x)  # type: ignore[no-untyped-call]


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mish": mish,
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "sine": torch.sin,  # SIREN's factor of 30 suits coordinates in space; codes already vary from id to id
}


class _Mish(torch.autograd.Function):
    """Not an operator of `torch.library`, which would take as long to call as a small layer to compute."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Keeps the derivative, which is all that the backward pass needs."""
        from . import kernels

        x = x.contiguous()
        out = torch.empty_like(x)
        if ctx.needs_input_grad[0]:
            slope = torch.empty_like(x)
            kernels.mish_and_slope(x.view(-1).numpy(), out.view(-1).numpy(), slope.view(-1).numpy())
            ctx.save_for_backward(slope)
        else:
            kernels.mish(x.view(-1).numpy(), out.view(-1).numpy())
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """The gradient times the slope."""
        (slope,) = ctx.saved_tensors
        return gradients[0] * slope
