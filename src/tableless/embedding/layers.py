"""The parts of the network: activations, linear layers of several experts, batch norm, and rows grouped by expert.

Mish, and batch norm with Mish, have compiled loops. torch's own take longer than the matrix products around them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..kernels import uses_kernels
from .scheme import normal


def mish(x: Tensor) -> Tensor:
    """x·tanh(ln(1 + eˣ)), by a compiled loop on the CPU. On other devices, or if torch compiles, by torch's own."""
    if not uses_kernels(x) or torch.compiler.is_compiling() or x.dtype != torch.float32:
        return F.mish(x)
    return _Mish.apply(x)  # type: ignore[no-untyped-call]


Activation = Literal["mish", "relu", "silu", "tanh", "sine"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "mish": mish,
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "sine": torch.sin,  # SIREN's factor of 30 suits coordinates in space; codes already vary from id to id
}


class ExpertLinear(nn.Module):
    """`num_experts` linear maps side by side."""

    def __init__(self, inputs: int, outputs: int, num_experts: int, *, std: float, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = normal(num_experts, outputs, inputs, std=std, generator=generator)
        self.bias = nn.Parameter(torch.zeros(num_experts, outputs))

    def forward(self, rows: Tensor) -> Tensor:
        """[num_experts, capacity, inputs] -> [num_experts, capacity, outputs]."""
        return torch.baddbmm(self.bias.unsqueeze(1), rows, self.weight.mT)


class BatchNorm(nn.Module):
    """Batch normalization that also works for a batch of one id, and for each expert by itself.

    One row has no variance. So a training batch (or an expert's share of it) with fewer than two rows is normalised by
    the running statistics, and does not change them. Callers pass each distinct id once (docs/decisions.md says why).
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, features: int, num_experts: int = 1, *, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        shape = (features,) if num_experts == 1 else (num_experts, features)
        self.eps = eps
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))
        self.register_buffer("running_mean", torch.zeros(shape))
        self.register_buffer("running_var", torch.ones(shape))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, rows: Tensor, groups: Grouping | None = None) -> Tensor:
        """[n, features], or [num_experts, capacity, features] with the `groups` that fill it -> the same shape."""
        if self.uses_batch(rows):
            self.num_batches_tracked.add_(1)
        if groups is not None:
            # Sums over many rows need more digits than 16-bit numbers have. Types of 32 bits and more stay as they are.
            exact = torch.promote_types(rows.dtype, torch.float32)
            return self._normalize_groups(rows.to(exact), groups.counts).to(rows.dtype)
        in_training = self.uses_batch(rows)
        return F.batch_norm(
            rows, self.running_mean, self.running_var, self.weight, self.bias, in_training, self.momentum, self.eps
        )

    def uses_batch(self, rows: Tensor) -> bool:
        """Are these rows normalised by their own statistics?"""
        return self.training and rows.shape[-2] > 1

    def forward_and_mish(self, rows: Tensor) -> Tensor:
        """`mish(forward(rows))` of a training batch, by the compiled loops."""
        self.num_batches_tracked.add_(1)
        out, mean, variance = norm_and_mish(rows, self.weight, self.bias, self.eps)
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (len(rows) / (len(rows) - 1)), self.momentum)
        return out

    def _normalize_groups(self, rows: Tensor, counts: Tensor) -> Tensor:
        mean, var = self.running_mean, self.running_var  # [num_experts, features]
        if self.training:
            slots = torch.arange(rows.shape[1], device=rows.device)
            filled = (slots < counts.unsqueeze(-1)).unsqueeze(-1)  # [num_experts, capacity, 1]
            number = counts.clamp(min=1).view(-1, 1)
            batch_mean = (rows * filled).sum(1) / number
            squares = ((rows - batch_mean.unsqueeze(1)) ** 2 * filled).sum(1)
            enough = counts.view(-1, 1) > 1
            mean, var = torch.where(enough, batch_mean, mean), torch.where(enough, squares / number, var)
            with torch.no_grad():
                unbiased = squares / (number - 1).clamp(min=1)
                share = self.momentum * enough
                for buffer, new in ((self.running_mean, batch_mean), (self.running_var, unbiased)):
                    buffer.lerp_(new.to(buffer), share.to(buffer))
        scale = self.weight * torch.rsqrt(var + self.eps)
        return torch.addcmul((self.bias - mean * scale).unsqueeze(1), rows, scale.unsqueeze(1))


class Grouping:
    """Where each of n rows goes in a block [num_groups, capacity, …], and how many rows each group holds.

    One batched product then serves many small networks at once. The capacity is that of the fullest group, so that no
    row is dropped; the free places of the other groups are padding.
    """

    def __init__(self, groups: Tensor, num_groups: int) -> None:
        num_rows = groups.shape[0]
        self.num_groups = num_groups
        if torch.compiler.is_exporting():
            # An exported program needs shapes that do not depend on the data: every group has room for every row.
            self.counts = torch.full((num_groups,), num_rows, device=groups.device)
            self.capacity = num_rows
            self.position = groups * num_rows + torch.arange(num_rows, device=groups.device)
            return
        self.counts = torch.bincount(groups, minlength=num_groups)  # [num_groups]
        self.capacity = int(self.counts.max()) if num_rows else 0
        order = groups.argsort(stable=True)
        start = self.counts.cumsum(0) - self.counts
        slot = torch.arange(num_rows, device=groups.device) - start[groups[order]]
        self.position = torch.empty_like(order)
        self.position[order] = groups[order] * self.capacity + slot

    def scatter(self, rows: Tensor) -> Tensor:
        """[n, size] -> [num_groups, capacity, size]; padding is zero."""
        block = rows.new_zeros(self.num_groups * self.capacity, rows.shape[-1])
        return block.index_put((self.position,), rows).view(self.num_groups, self.capacity, rows.shape[-1])

    def gather(self, block: Tensor) -> Tensor:
        """[num_groups, capacity, size] -> [n, size], each row back where it came from."""
        return block.flatten(0, 1)[self.position]


def norm_and_mish(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """mish(batch_norm(x)) of float32 [n, width] on the CPU, and the mean and (biased) variance of the columns."""
    return _NormAndMish.apply(x, weight, bias, eps)  # type: ignore[no-untyped-call]


class _NormAndMish(torch.autograd.Function):
    """A plain function, since calling an operator of `torch.library` takes as long as computing a small layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """Keeps what the backward pass needs: x, the slope of Mish, and some numbers for each column."""
        from ..kernels import activations as loops

        x = x.contiguous()
        out, slope = torch.empty_like(x), torch.empty_like(x)
        mean, variance = torch.empty_like(weight), torch.empty_like(weight)
        loops.moments(x.numpy(), mean.numpy(), variance.numpy())
        inverse_std = torch.rsqrt(variance + eps)
        scale = weight * inverse_std
        arrays = (x, scale, bias - mean * scale, out, slope)
        loops.mish_of_line(*(tensor.numpy() for tensor in arrays))
        ctx.save_for_backward(slope, x, mean, inverse_std, scale)
        ctx.mark_non_differentiable(mean, variance)
        ctx.set_materialize_grads(False)
        return out, mean, variance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """The gradients of x, weight and bias."""
        from ..kernels import activations as loops

        gradient, scale = gradients[0].contiguous(), ctx.saved_tensors[-1]
        to_x, to_weight, to_bias = torch.empty_like(gradient), torch.empty_like(scale), torch.empty_like(scale)
        arrays = (gradient, *ctx.saved_tensors, to_x, to_weight, to_bias)
        loops.norm_and_mish_backward(*(tensor.numpy() for tensor in arrays))
        return to_x, to_weight, to_bias, None


class _Mish(torch.autograd.Function):
    """A plain function, since calling an operator of `torch.library` takes as long as computing a small layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Keeps the slope of Mish, if there will be a backward pass."""
        from ..kernels import activations as loops

        x = x.contiguous()
        out = torch.empty_like(x)
        if ctx.needs_input_grad[0]:
            slope = torch.empty_like(x)
            loops.mish_and_slope(x.view(-1).numpy(), out.view(-1).numpy(), slope.view(-1).numpy())
            ctx.save_for_backward(slope)
        else:
            loops.mish_values(x.view(-1).numpy(), out.view(-1).numpy())
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """The gradient times the slope."""
        (slope,) = ctx.saved_tensors
        return gradients[0] * slope
