"""Batch norm and Mish of a training batch in one go: apart they cost more than the products around them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def norm_and_mish(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """mish(batch_norm(x)) of float32 [n, width] on the CPU, and the mean and (biased) variance of the columns."""
    return _NormAndMish.apply(x, weight, bias, eps)  # type: ignore[no-untyped-call]


class _NormAndMish(torch.autograd.Function):
    """Not an operator of `torch.library`, which would take as long to call as a small layer to compute."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """Keeps what the backward pass needs: x and the slope of Mish, and some numbers for each column."""
        from . import kernels

        x = x.contiguous()
        out, slope = torch.empty_like(x), torch.empty_like(x)
        mean, variance = torch.empty_like(weight), torch.empty_like(weight)
        kernels.moments(x.numpy(), mean.numpy(), variance.numpy())
        inverse_std = torch.rsqrt(variance + eps)
        scale = weight * inverse_std
        arrays = (x, scale, bias - mean * scale, out, slope)
        kernels.mish_of_line(*(tensor.numpy() for tensor in arrays))
        ctx.save_for_backward(slope, x, mean, inverse_std, scale)
        ctx.mark_non_differentiable(mean, variance)
        ctx.set_materialize_grads(False)
        return out, mean, variance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """By x, weight and bias."""
        from . import kernels

        gradient, scale = gradients[0].contiguous(), ctx.saved_tensors[-1]
        to_x, to_weight, to_bias = torch.empty_like(gradient), torch.empty_like(scale), torch.empty_like(scale)
        arrays = (gradient, *ctx.saved_tensors, to_x, to_weight, to_bias)
        kernels.norm_and_mish_backward(*(tensor.numpy() for tensor in arrays))
        return to_x, to_weight, to_bias, None
