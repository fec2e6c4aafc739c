"""The activations of the network, and a Mish with one exponential: torch's own is most of the cost of a small layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .hashing import uses_kernels


def mish(x: Tensor) -> Tensor:
    """x·tanh(ln(1 + eˣ)): compiled on the CPU, torch's elsewhere."""
    if not uses_kernels(x) or x.dtype != torch.float32:
        return F.mish(x)
    out, _ = _mish(x, torch.is_grad_enabled() and x.requires_grad)
    return out


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mish": mish,
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "sine": torch.sin,  # SIREN's factor of 30 suits coordinates in space; codes already vary from id to id
}


@torch.library.custom_op("tableless::mish", mutates_args=(), device_types="cpu")
def _mish(x: Tensor, with_slope: bool) -> tuple[Tensor, Tensor]:
    """The value and, if asked for, the derivative, which is all that the backward pass needs."""
    from . import kernels

    x = x.contiguous()
    out, slope = torch.empty_like(x), torch.empty_like(x) if with_slope else x.new_empty(0)
    kernels.mish(x.view(-1).numpy(), out.view(-1).numpy(), slope.view(-1).numpy())
    return out, slope


@_mish.register_fake
def _(x: Tensor, with_slope: bool) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x) if with_slope else x.new_empty(0)


def _remember(
    ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, bool], output: tuple[Tensor, Tensor]
) -> None:
    ctx.save_for_backward(output[1])
    ctx.set_materialize_grads(False)  # nobody takes a gradient of the slope; zeros for it would cost a pass


def _backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor, _: Tensor) -> tuple[Tensor, None]:
    (slope,) = ctx.saved_tensors  # type: ignore[attr-defined]
    return gradient * slope, None


_mish.register_autograd(_backward, setup_context=_remember)
