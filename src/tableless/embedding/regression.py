"""Regression: a network learns given vectors step by step, with the optimizer `Muon`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import torch
from torch import Tensor, nn

from .layers import BatchNorm
from .scheme import EmbeddingScheme, seeded

# The learning rate, for layers up to this width (docs/decisions.md).
_RATE, _WIDEST_AT_RATE = 0.03, 192
# A batch has this share of each expert's rows: with smaller batches the steps are too noisy for the rate. The lower
# bound is there because a step costs about the same for few rows, the upper one because memory is finite.
_SHARE, _SMALLEST_BATCH, _LARGEST_BATCH = 1 / 8, 2048, 8192
# When a fit has diverged. Errors are averaged over a pass of the rows, but over at least `_WATCHED_STEPS` steps. A mean
# that is `_DIVERGED` times the lowest mean before counts as divergence; in the second half of the steps it is
# `_DIVERGED_AT_HALF` times. Errors below `_NEGLIGIBLE` never count. Good fits came down all the way.
_WATCHED_STEPS, _DIVERGED, _DIVERGED_AT_HALF, _NEGLIGIBLE, _MOST_ATTEMPTS = 50, 1.25, 1.1, 1e-3, 6
_STEPS = 5
# Of an odd polynomial. Applied again and again, it brings the singular values of a matrix near 1.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_MOMENTUM = 0.95


def rate_for(scheme: nn.Module) -> float:
    """The rate that was best for layers of 100 to 180 units, and less for wide layers, which diverge at that rate."""
    width = max((min(weight.shape[-2:]) for weight in scheme.parameters() if weight.ndim > 1), default=1)
    return _RATE * min(1.0, _WIDEST_AT_RATE / width)


def learn_rows(
    scheme: EmbeddingScheme,
    ids: Tensor,
    rows: Tensor,
    metric: Tensor,
    weights: Tensor,
    visits: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    on_step: Callable[[int, int, float], None] | None,
) -> tuple[int, float]:
    """Learn the rows by regression. Returns the number of steps, and the rate of the last attempt."""
    per_pass = -(-len(rows) // min(batch_size, len(rows)))
    steps = max(1, visits) * per_pass
    beginning = {name: value.clone() for name, value in scheme.state_dict().items()}
    for attempt in range(_MOST_ATTEMPTS):
        scheme.load_state_dict(beginning)
        errors = _descend(scheme, ids, rows, metric, weights, steps, per_pass, learning_rate / 2**attempt, seed)
        if on_step:
            errors = _told(errors, lambda step, error: on_step(step, steps, error))
        if _came_down(errors, max(_WATCHED_STEPS, per_pass), steps, is_last=attempt + 1 == _MOST_ATTEMPTS):
            break
    return steps, learning_rate / 2**attempt


def default_batch(num_rows: int, num_experts: int) -> int:
    """Rows of a step, for all experts together."""
    return num_experts * min(max(_SMALLEST_BATCH, math.ceil(_SHARE * num_rows / num_experts)), _LARGEST_BATCH)


def _told(errors: Iterator[Tensor], tell: Callable[[int, float], None]) -> Iterator[Tensor]:
    for step, error in enumerate(errors, start=1):
        tell(step, float(error))
        yield error


def _came_down(errors: Iterator[Tensor], watched: int, steps: int, *, is_last: bool) -> bool:
    """Take the steps of one attempt. Returns False as soon as it diverges; the last attempt takes all steps anyway.

    It has diverged where the mean error of `watched` steps is well above the lowest mean before.
    """
    lowest, taken = float("inf"), 0
    while len(recent := list(islice(errors, watched))) == watched:
        taken += watched
        mean = float(torch.stack(recent).mean())
        limit = _DIVERGED if 2 * taken < steps else _DIVERGED_AT_HALF
        is_fine = mean <= max(limit * lowest, _NEGLIGIBLE)  # NaN is not fine: every comparison with it is false
        if not (is_fine or is_last):
            return False
        lowest = min(lowest, mean)
    return True


def _descend(
    scheme: EmbeddingScheme,
    ids: Tensor,
    rows: Tensor,
    metric: Tensor,
    weights: Tensor,
    steps: int,
    per_pass: int,
    learning_rate: float,
    seed: int,
) -> Iterator[Tensor]:
    """Take step after step, and yield the error of each as a share of the table's mean square."""
    variance = ((rows @ metric).square().mean(-1) @ weights) / len(rows)
    variance = torch.where(variance > 0, variance, 1)  # a table of zeros must not divide by zero
    optimizer = Muon(scheme.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning_rate, total_steps=steps + 1, pct_start=0.15, cycle_momentum=False, final_div_factor=1000
    )
    generator = seeded(seed)
    scheme.train()
    for step in range(steps):
        if step % per_pass == 0:
            order = torch.randperm(len(rows), generator=generator) if per_pass > 1 else torch.arange(len(rows))
        part = order[step % per_pass :: per_pass]
        optimizer.zero_grad()
        errors = ((scheme(ids[part]) - rows[part]) @ metric).square().mean(-1)
        error = (errors * weights[part]).mean() / variance
        torch.autograd.backward(error)
        optimizer.step()
        schedule.step()
        yield error.detach()


@torch.no_grad()
def settle_statistics(scheme: nn.Module, ids: Tensor, *, batch_size: int = 2048) -> None:
    """Compute the running statistics of batch norm anew. Those of training lag behind the final weights."""
    norms = [module for module in scheme.modules() if isinstance(module, BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    if not norms:
        return
    scheme.train()
    for number, part in enumerate(torch.split(ids, batch_size)):
        for norm in norms:
            norm.momentum = 1 / (number + 1)  # so that the result is the plain mean over the batches
        scheme(part)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


class Muon(torch.optim.Optimizer):
    """Muon for weights of two or more dimensions (the last two are the matrix), Adam for all others.

    Muon makes the update of a matrix orthogonal, so that every direction of a layer learns at the same pace. Updates
    are scaled to the size that Adam's would have, so one learning rate serves both.

    It is not torch.optim.Muon, because that takes single matrices and works in bfloat16, which is slow on CPUs. This
    one takes stacks of matrices (experts) in float32.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(list(parameters), {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    update = self._matrix_update if parameter.ndim > 1 else self._vector_update
                    parameter.add_(update(parameter.grad, self.state[parameter]), alpha=-group["lr"])

    def _matrix_update(self, gradient: Tensor, state: dict[str, Tensor]) -> Tensor:
        if not state:
            state["momentum"] = torch.zeros_like(gradient)
        state["momentum"].lerp_(gradient, 1 - _MOMENTUM)
        direction = torch.lerp(gradient, state["momentum"], _MOMENTUM)  # Nesterov
        return _orthogonalise(direction) * (0.2 * max(gradient.shape[-2:]) ** 0.5)

    def _vector_update(self, gradient: Tensor, state: dict[str, Tensor]) -> Tensor:
        if not state:
            state["mean"], state["square"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
            state["count"] = torch.zeros(())
        state["count"] += 1
        state["mean"].lerp_(gradient, 0.1)
        state["square"].lerp_(gradient.square(), 0.02)
        mean = state["mean"] / (1 - 0.9 ** state["count"])
        return mean / ((state["square"] / (1 - 0.98 ** state["count"])).sqrt() + 1e-8)


def _orthogonalise(matrix: Tensor) -> Tensor:
    """The nearest matrix whose singular values are near 1, by a few steps of a Newton–Schulz iteration."""
    a, b, c = _COEFFICIENTS
    stack = matrix.reshape(-1, *matrix.shape[-2:])
    wide = stack.shape[-2] <= stack.shape[-1]
    x = stack if wide else stack.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x if wide else x.mT).reshape(matrix.shape)
