"""Regression: a network learns given vectors step by step, with the optimizer `Muon`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
from torch import Tensor, nn

from ..kernels.idle_cores import on_idle_cores
from .layers import BatchNorm
from .muon import Muon
from .scheme import EmbeddingScheme, seeded

# The learning rate, for layers up to this width (docs/tried.md).
_RATE, _WIDEST_AT_RATE = 0.06, 96
# A batch has this share of each expert's rows: with smaller batches the steps are too noisy for the rate. The lower
# bound is there because a step costs about the same for few rows, the upper one because memory is finite.
_SHARE, _SMALLEST_BATCH, _LARGEST_BATCH = 1 / 8, 2048, 8192
# When a fit has diverged. Errors are averaged over a pass of the rows, but over at least `_WATCHED_STEPS` steps. A mean
# that is `_DIVERGED` times the lowest mean before counts as divergence; in the second half of the steps it is
# `_DIVERGED_AT_HALF` times. Errors below `_NEGLIGIBLE` never count. Good fits came down all the way.
_WATCHED_STEPS, _DIVERGED, _DIVERGED_AT_HALF, _NEGLIGIBLE, _MOST_ATTEMPTS = 50, 1.25, 1.1, 1e-3, 6
# A fit is poor if more than this share of the variance is unexplained. If its error fell below `_STILL_FALLING` times
# that of the middle of the cycle, it begins again with `_LONGER` times the visits. Networks that are too small for
# their table end at 0.6 to 0.8 times that error, and gain little from more steps. One that had too few steps falls
# further. An error of `_CLOSE_ENOUGH` ends a fit before its time.
POOR, _STILL_FALLING, _LONGER, _CLOSE_ENOUGH = 0.1, 0.55, 4, 1e-5
ROUNDING = 1e-12  # equal rows of float32 have at most this variance, as a share of their squares
_CHUNK = 16_384  # rows that are looked at at a time


def rate_for(scheme: nn.Module) -> float:
    """The highest rate that layers of some 100 units follow, and less for wider layers, which diverge at that rate."""
    width = max((min(weight.shape[-2:]) for weight in scheme.parameters() if weight.ndim > 1), default=1)
    return _RATE * min(1.0, _WIDEST_AT_RATE / width)


@dataclass(frozen=True)
class Target:
    """The rows that ids shall have, and how errors count: an error e of row i as weights[i] · ‖e @ metric‖²."""

    ids: Tensor
    rows: Tensor
    metric: Tensor
    weights: Tensor

    def only(self, mask: Tensor) -> Target:
        """The rows where the mask is true."""
        return Target(self.ids[mask], self.rows[mask], self.metric, self.weights[mask])

    def parts(self) -> Iterator[Target]:
        """Some rows at a time, so that little memory is needed."""
        for some in zip(*(torch.split(part, _CHUNK) for part in (self.ids, self.rows, self.weights)), strict=True):
            yield Target(some[0], some[1], self.metric, some[2])

    def mean(self) -> Tensor:
        """The weighted mean row [embedding_dim], in float64."""
        sums = torch.stack([part.weights.double() @ part.rows.double() for part in self.parts()])
        return sums.sum(0) / (self.weights.double().sum() or 1)

    def spread(self) -> float:
        """The standard deviation of all numbers around the mean row; 0 if all rows are the same but for rounding."""
        mean, parts = self.mean(), self.parts()
        squares = sum(float(part.weights.double() @ (part.rows.double() - mean).square().mean(-1)) for part in parts)
        variance = squares / (float(self.weights.double().sum()) or 1)
        return math.sqrt(variance) if not variance <= ROUNDING * float(mean.square().mean()) else 0.0

    def standardised(self, mean: Tensor, scale: float) -> Target:
        """The same ids with the rows (row - mean) / scale."""
        rows = torch.cat([((part.rows.double() - mean) / scale).to(self.rows) for part in self.parts()])
        return Target(self.ids, rows, self.metric, self.weights)


@dataclass(frozen=True)
class Cycle:
    """One cycle of the learning rate, and what came of it: the error in its middle and at its end."""

    steps: int
    visits: int
    learning_rate: float
    middle_error: float
    last_error: float

    @property
    def needs_more_steps(self) -> bool:
        """Is the fit poor, and was its error still falling? Where it is not, more steps would bring little."""
        return self.last_error > POOR and self.last_error < _STILL_FALLING * self.middle_error


def learn_rows(
    scheme: EmbeddingScheme,
    target: Target,
    *,
    visits: int,
    may_take_longer: bool,
    batch_size: int,
    learning_rate: float,
    seed: int,
    on_step: Callable[[int, int, float], None] | None,
    say: Callable[[str], None],
) -> Cycle:
    """Learn the rows by regression: one cycle of the learning rate over that many visits of each row.

    If it needs more steps, there is a longer cycle from the beginning. The better of both is kept.
    """
    beginning = copy_state(scheme)
    run = partial(_cycle, scheme, beginning, target, batch_size, learning_rate, seed, on_step)
    first = run(visits)
    if not (may_take_longer and first.needs_more_steps):
        return first
    say(
        f"{first.last_error:.0%} is unexplained after {visits} visits of each row, and the error was still falling: "
        f"the fit begins again, with {_LONGER * visits} visits"
    )
    after_first = copy_state(scheme)
    second = run(_LONGER * visits)
    if second.last_error <= first.last_error:
        return second
    scheme.load_state_dict(after_first)
    return first


def default_batch(num_rows: int, num_experts: int) -> int:
    """Rows of a step, for all experts together."""
    return num_experts * min(max(_SMALLEST_BATCH, math.ceil(_SHARE * num_rows / num_experts)), _LARGEST_BATCH)


def copy_state(scheme: nn.Module) -> dict[str, Tensor]:
    """A state dict that stays as it is when the scheme learns on."""
    return {name: value.clone() for name, value in scheme.state_dict().items()}


def _cycle(
    scheme: EmbeddingScheme,
    beginning: dict[str, Tensor],
    target: Target,
    batch_size: int,
    learning_rate: float,
    seed: int,
    on_step: Callable[[int, int, float], None] | None,
    visits: int,
) -> Cycle:
    """Take all steps of a cycle. If the fit diverges, it begins again at half the learning rate."""
    per_pass = -(-len(target.rows) // min(batch_size, len(target.rows)))
    steps = max(1, visits) * per_pass
    for attempt in range(_MOST_ATTEMPTS):
        scheme.load_state_dict(beginning)
        rate = learning_rate / 2**attempt
        errors = _descend(scheme, target, steps, per_pass, rate, seed)
        if on_step:
            errors = _told(errors, lambda step, error: on_step(step, steps, error))
        watched = max(_WATCHED_STEPS, per_pass)
        curve, came_down = _watch(errors, watched, steps, is_last=attempt + 1 == _MOST_ATTEMPTS)
        if came_down:
            break
    taken = len(curve)
    few = min(watched, -(-taken // 10))  # of a short cycle the last tenth, so that it is the end that is measured
    middle = float(curve[taken // 2 :][:few].mean())
    return Cycle(taken, -(-taken // per_pass), rate, middle, float(curve[-few:].mean()))


def _told(errors: Iterator[Tensor], tell: Callable[[int, float], None]) -> Iterator[Tensor]:
    for step, error in enumerate(errors, start=1):
        tell(step, float(error))
        yield error


def _watch(errors: Iterator[Tensor], watched: int, steps: int, *, is_last: bool) -> tuple[Tensor, bool]:
    """Take the steps of one attempt. Returns the error of each, and whether it came down.

    An attempt has diverged where the mean error of `watched` steps is well above the lowest mean before. It ends there,
    but the last attempt takes all steps anyway. It also ends where the error is so small that nothing is left to learn.
    """
    lowest, curve = float("inf"), list[Tensor]()
    while recent := list(islice(errors, watched)):
        curve += recent
        mean = float(torch.stack(recent).mean())
        if len(recent) < watched:
            break
        limit = _DIVERGED if 2 * len(curve) < steps else _DIVERGED_AT_HALF
        is_fine = mean <= max(limit * lowest, _NEGLIGIBLE)  # NaN is not fine: every comparison with it is false
        if not (is_fine or is_last):
            return torch.stack(curve), False
        lowest = min(lowest, mean)
        if mean < _CLOSE_ENOUGH:
            break
    return torch.stack(curve), True


def _descend(
    scheme: EmbeddingScheme, target: Target, steps: int, per_pass: int, learning_rate: float, seed: int
) -> Iterator[Tensor]:
    """Take step after step, and yield the error of each as a share of the variance around the mean row."""
    ids, rows, metric, weights = target.ids, target.rows, target.metric, target.weights
    variance = (((rows - target.mean().to(rows)) @ metric).square().mean(-1) @ weights) / len(rows)
    variance = torch.where(variance > 0, variance, 1)  # a table of equal rows must not divide by zero
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
        with on_idle_cores():
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
