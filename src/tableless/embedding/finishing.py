"""Rounding by parts: how a network that was trained in float32 gets weights of 8 bits, and loses little.

Weights that are rounded all at once add up their errors. So they are rounded in four parts, those that are nearest to
an integer first. After each part the weights that are still floats, and the biases, learn again what the network
answered before. (docs/tried.md has other ways.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..kernels.idle_cores import on_idle_cores
from .regression import ROUNDING, Target, default_batch
from .rounded_matrix import RoundedLinear
from .rounding import largest_integer, to_floats, to_integers
from .scheme import EmbeddingScheme, seeded

# With fewer bits too much is lost that the rest cannot make good. These networks learn with rounded weights from the
# beginning, and so do those of 16 bits, which lose nothing.
_BITS = 8
# The share of each row that is rounded after each part, and the steps that follow. Adam's rate goes down to 0 in them.
_PARTS, _STEPS, _RATE, _WARM_UP = (0.5, 0.75, 0.9, 1.0), 30, 1e-3, 5
_CHUNK = 16_384  # ids that are looked at at a time


@contextmanager
def in_float32(module: nn.Module) -> Iterator[bool]:
    """Weights of 8 bits are not rounded in here: networks are trained as if they were float32.

    Whoever has entered it first calls `round_by_parts` at the end, so it tells whether there is something to round for
    the caller.
    """
    matrices = [layer.weight for layer in _layers(module) if layer.weight.rounds]
    for matrix in matrices:
        matrix.rounds = False
    try:
        yield bool(matrices)
    finally:
        for matrix in matrices:
            matrix.rounds = True


def has_weights_to_round(module: nn.Module) -> bool:
    """Is there something for `round_by_parts` to do?"""
    return bool(_layers(module))


def round_by_parts(
    scheme: EmbeddingScheme,
    ids: Tensor,
    *,
    metric: Tensor,
    weights: Tensor | None = None,
    seed: int = 0,
    on_step: Callable[[int, int, float], None] | None = None,
) -> float:
    """Round all weights of 8 bits in a scheme, in eval mode, so that the vectors of these ids [n] change little.

    An error e of vector i counts weights[i] · ‖e @ metric‖². Returns the errors as a share of the variance of the
    vectors. `on_step` is told the number of a step, that of all steps, and the error of the step.
    """
    scheme.eval()
    if not len(ids):
        return 0.0
    layers = _layers(scheme)
    parts = [_Part.of(layer.weight.values, layer.weight.bits) for layer in layers]
    per_pass = -(-len(ids) // default_batch(8 * len(ids), scheme.num_experts))
    steps = -(-_STEPS // per_pass) * per_pass
    with in_float32(scheme):
        with torch.no_grad():
            vectors = torch.cat([scheme(some).float() for some in torch.split(ids, _CHUNK)])
        own = Target(ids, vectors, metric.to(vectors), vectors.new_ones(len(ids)) if weights is None else weights)
        for number, share in enumerate(_PARTS):
            for part in parts:
                part.round(share)
            if share == 1:
                break
            for step, error in enumerate(_learn(scheme, own, layers, parts, steps, per_pass, seed + number), start=1):
                if on_step:
                    on_step(number * steps + step, (len(_PARTS) - 1) * steps, float(error))
            for part in parts:
                part.stay_in_range()
    return _lost(scheme, own)


@dataclass(frozen=True)
class _Part:
    """The weights of a layer, of which some are rounded already."""

    values: Tensor
    scale: Tensor  # of each row, as it will be stored
    is_rounded: Tensor
    most: int

    @classmethod
    def of(cls, values: Tensor, bits: int) -> _Part:
        values = values.detach()
        return cls(
            values, to_integers(values, bits)[1], torch.zeros_like(values, dtype=torch.bool), largest_integer(bits)
        )

    def round(self, share: float) -> None:
        """Round more weights, until it is this share of each row.

        The largest weight of a row comes first. Its integer is the largest one too, so the scale that is computed when
        the weights are stored is the scale here.
        """
        scale = self.scale.float().unsqueeze(-1)
        nearest = (self.values / scale).round().clamp(-self.most, self.most)
        distance = (self.values - to_floats(nearest, self.scale)).abs() / scale
        distance.scatter_(-1, self.values.abs().argmax(-1, keepdim=True), -1.0)
        distance.masked_fill_(self.is_rounded, -1.0)
        count = max(1, round(share * distance.shape[-1]))
        self.is_rounded.scatter_(-1, distance.argsort(dim=-1, stable=True)[..., :count], True)
        self.values.copy_(torch.where(self.is_rounded, to_floats(nearest, self.scale), self.values))

    def stay_in_range(self) -> None:
        """No weight may have become larger than the largest integer."""
        limit = to_floats(torch.full_like(self.values, self.most), self.scale)
        self.values.copy_(self.values.clamp(-limit, limit))


def _learn(
    scheme: EmbeddingScheme,
    own: Target,
    layers: list[RoundedLinear],
    parts: list[_Part],
    steps: int,
    per_pass: int,
    seed: int,
) -> Iterator[Tensor]:
    """Learn the vectors again with what is not rounded yet. Yields the error of each step."""
    trained = [parameter for layer in layers for parameter in (layer.weight.values, layer.bias)]
    optimizer = torch.optim.Adam(trained, lr=_RATE, betas=(0.9, 0.98))
    variance, generator = _variance(own), seeded(seed)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = _RATE * (1 - step / steps) * min(1.0, (step + 1) / _WARM_UP)
        if step % per_pass == 0:
            order = torch.randperm(len(own.ids), generator=generator) if per_pass > 1 else torch.arange(len(own.ids))
        some = order[step % per_pass :: per_pass]
        with on_idle_cores():
            errors = ((scheme(own.ids[some]) - own.rows[some]) @ own.metric).square().sum(-1)
            error = (errors * own.weights[some]).mean() / variance
            gradients = torch.autograd.grad(error, trained)
        for parameter, gradient in zip(trained, gradients, strict=True):
            parameter.grad = gradient
        for layer, part in zip(layers, parts, strict=True):
            assert layer.weight.values.grad is not None
            layer.weight.values.grad.masked_fill_(part.is_rounded, 0.0)
        optimizer.step()
        yield error.detach()
    optimizer.zero_grad()


@torch.no_grad()
def _lost(scheme: EmbeddingScheme, own: Target) -> float:
    errors = sum(
        float(part.weights.double() @ ((scheme(part.ids) - part.rows) @ part.metric).double().square().sum(-1))
        for part in own.parts()
    )
    return errors / len(own.ids) / _variance(own)


def _variance(own: Target) -> float:
    """The mean squared distance of a vector from the mean vector, by metric and weights."""
    mean, squares = own.mean(), 0.0
    for part in own.parts():
        squares += float(part.weights.double() @ ((part.rows - mean) @ part.metric.double()).square().sum(-1))
    total = float(mean.square().sum())
    variance = squares / len(own.ids)
    return variance if variance > ROUNDING * total else max(total, ROUNDING)  # vectors may all be the same


def _layers(module: nn.Module) -> list[RoundedLinear]:
    """The layers whose weights have 8 bits, in the form that is trained."""
    layers = [part for part in module.modules() if isinstance(part, RoundedLinear)]
    return [layer for layer in layers if layer.weight.bits == _BITS and not layer.weight.packed]
