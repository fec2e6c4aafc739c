"""Batch norm and Mish of a training batch as one compiled operator: apart they cost more than the products around."""

from __future__ import annotations

import torch
from torch import Tensor


def norm_and_mish(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """mish(batch_norm(x)) of float32 [n, width] on the CPU, and the mean and (biased) variance of the columns."""
    out, _, _, mean, variance = _norm_and_mish(x, weight, bias, eps)
    return out, mean, variance


@torch.library.custom_op("tableless::norm_and_mish", mutates_args=(), device_types="cpu")
def _norm_and_mish(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The value and what the backward pass needs: the normalised x, the slope of Mish; then mean and variance."""
    from . import kernels

    x = x.contiguous()
    out, normal, slope = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
    mean, variance = torch.empty_like(weight), torch.empty_like(weight)
    kernels.moments(x.numpy(), mean.numpy(), variance.numpy())
    inverse_std = torch.rsqrt(variance + eps)
    arrays = (mean, inverse_std, weight.detach(), bias.detach(), normal, out, slope)
    kernels.normalize_and_mish(x.numpy(), *(tensor.numpy() for tensor in arrays))
    return out, normal, slope, mean, variance


@_norm_and_mish.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    rows, columns = torch.empty_like(x), torch.empty_like(weight)
    return rows, torch.empty_like(x), torch.empty_like(x), columns, torch.empty_like(weight)


@torch.library.custom_op("tableless::norm_and_mish_backward", mutates_args=(), device_types="cpu")
def _gradients(gradient: Tensor, normal: Tensor, slope: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    from . import kernels

    gradient = gradient.contiguous()
    to_x, to_weight, to_bias = torch.empty_like(gradient), torch.empty_like(scale), torch.empty_like(scale)
    arrays = (gradient, normal, slope, scale, to_x, to_weight, to_bias)
    kernels.normalize_and_mish_backward(*(tensor.numpy() for tensor in arrays))
    return to_x, to_weight, to_bias


@_gradients.register_fake
def _(gradient: Tensor, normal: Tensor, slope: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(gradient), torch.empty_like(scale), torch.empty_like(scale)


def _remember(
    ctx: torch.autograd.function.FunctionCtx,
    inputs: tuple[Tensor, Tensor, Tensor, float],
    output: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
) -> None:
    _, weight, _, eps = inputs
    _, normal, slope, _, variance = output
    ctx.save_for_backward(normal, slope, weight, variance)
    ctx.eps = eps  # type: ignore[attr-defined]
    ctx.set_materialize_grads(False)  # nobody takes a gradient of anything but the value


def _backward(
    ctx: torch.autograd.function.FunctionCtx, gradient: Tensor, *_: Tensor
) -> tuple[Tensor, Tensor, Tensor, None]:
    normal, slope, weight, variance = ctx.saved_tensors  # type: ignore[attr-defined]
    return *_gradients(gradient, normal, slope, weight * torch.rsqrt(variance + ctx.eps)), None  # type: ignore[attr-defined]


_norm_and_mish.register_autograd(_backward, setup_context=_remember)
