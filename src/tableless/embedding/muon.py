"""Muon: the optimizer of the regression."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

_STEPS = 5
# Of an odd polynomial. Applied again and again, it brings the singular values of a matrix near 1.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_MOMENTUM = 0.95


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
