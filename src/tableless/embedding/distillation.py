"""Distillation: what a table knows, learned by a scheme that is smaller.

Tables are computed from its rows (`EmbeddingScheme.fit_directly`), networks learn them by regression.


Muon: momentum whose matrices are orthogonalised, so that every direction of a layer learns at the same pace.

torch.optim.Muon takes single matrices and works in bfloat16, which CPUs are slow at; this one takes stacks of them
(experts) in float32, and leaves everything that is no matrix to Adam.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.resources import keeping_freed_memory
from .layers import BatchNorm
from .scheme import EmbeddingScheme, seeded

_RATE, _WIDEST_AT_RATE = 0.03, 192
# Each row of the table is visited as often as makes for so many visits together, within these bounds.
_ALL_VISITS, _FEWEST_VISITS, _MOST_VISITS = 3_000_000, 60, 400
# Rows of a batch, for each expert: an eighth of its rows, since smaller parts are too noisy for the rate, within these
# bounds: an update costs the same for few rows as for many, and memory is finite (docs/decisions.md).
_SHARE, _SMALLEST_BATCH, _LARGEST_BATCH = 1 / 8, 2048, 8192
# A fit has diverged if its mean error over a pass, and so many steps at least, is so much above the lowest before
# (less is enough once half of the steps are taken), and not negligible. Those that have not came down all the way,
# wherever they were watched (docs/decisions.md).
_WATCHED_STEPS, _DIVERGED, _DIVERGED_AT_HALF, _NEGLIGIBLE, _MOST_ATTEMPTS = 50, 1.25, 1.1, 1e-3, 6
_CHUNK = 16_384  # rows compared at once


@dataclass(frozen=True)
class Distillation:
    """How well it went, and by which settings.

    `unexplained` is the share of the table's variance (in the metric used) that is left over. What was computed and
    not learned took no steps, and has no settings.
    """

    unexplained: float
    mean_cosine: float
    steps: int
    seconds: float
    visits: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None  # at its highest, of the attempt that counts


@keeping_freed_memory()
def distil(
    table: Tensor | nn.Embedding | nn.EmbeddingBag,
    scheme: EmbeddingScheme,
    *,
    ids: Tensor | None = None,
    metric: Tensor | None = None,
    weights: Tensor | None = None,
    visits: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    on_step: Callable[[int, int, float], None] | None = None,
) -> Distillation:
    """Fit `scheme`, in place, to the rows of a trained table; the data it was trained on is not needed.

    `ids` [rows] says which id each row belongs to (its number, if not given). `metric` [dim, n] says how an error e
    counts: ‖e @ metric‖², and `weights` [rows] how much each row does. What can be computed is computed, and takes no
    steps: means, least squares, a singular value decomposition. What is below is for the networks, which must learn.

    Every row is visited `visits` times: if not given 400 times, or fewer in a table of more than 7,500 rows; more is
    better, with diminishing returns. A batch has an eighth of the rows, but at least 2048 and at most 8192 for each
    expert. `learning_rate` is Muon's, chosen by the width of the network if not given; a fit that diverges begins again
    at half the rate.
    """
    rows = (table.weight if isinstance(table, (nn.Embedding, nn.EmbeddingBag)) else table).detach()
    ids = torch.arange(len(rows)) if ids is None else ids
    if rows.shape != (len(ids), scheme.embedding_dim):
        raise ValueError(f"the table has shape {tuple(rows.shape)}; expected [{len(ids)}, {scheme.embedding_dim}]")
    start = time.perf_counter()
    device = next(scheme.parameters()).device
    rows, ids = rows.to(device, torch.float32), ids.to(device)
    metric = (torch.eye(scheme.embedding_dim) if metric is None else metric).to(rows)
    weights = (torch.ones(len(rows)) if weights is None else weights).to(rows)
    if visits is None:
        visits = max(_FEWEST_VISITS, min(_MOST_VISITS, _ALL_VISITS // max(1, len(rows))))
    learner, left = scheme.fit_directly(ids, rows, metric=metric, weights=weights)
    if learning_rate is None:
        learning_rate = _rate_for(learner)
    steps, settings = 0, dict[str, Any]()
    if left.any():
        batch_size = batch_size or _default_batch(int(left.sum()), learner.num_experts)
        own = ids[left], rows[left], metric, weights[left]
        steps, rate = _fit(learner, *own, visits, batch_size, learning_rate, seed, on_step)
        settle_statistics(learner, ids[left])
        settings = {"visits": visits, "batch_size": batch_size, "learning_rate": rate}
    scheme.eval()
    unexplained, cosine = _compare(rows, scheme, ids, metric)
    return Distillation(unexplained, cosine, steps, time.perf_counter() - start, **settings)


def _rate_for(scheme: nn.Module) -> float:
    """What did best for layers of 100 to 180 units; a wide layer at that rate diverges (docs/decisions.md)."""
    width = max((min(weight.shape[-2:]) for weight in scheme.parameters() if weight.ndim > 1), default=1)
    return _RATE * min(1.0, _WIDEST_AT_RATE / width)


def _fit(
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
    """The regression itself; returns how many steps it took, and at which rate."""
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


def _default_batch(num_rows: int, num_experts: int) -> int:
    return num_experts * min(max(_SMALLEST_BATCH, math.ceil(_SHARE * num_rows / num_experts)), _LARGEST_BATCH)


def _told(errors: Iterator[Tensor], tell: Callable[[int, float], None]) -> Iterator[Tensor]:
    for step, error in enumerate(errors, start=1):
        tell(step, float(error))
        yield error


def _came_down(errors: Iterator[Tensor], watched: int, steps: int, *, is_last: bool) -> bool:
    """Take all steps, or, unless it is the last attempt, give up where the mean error of `watched` steps has risen."""
    lowest, taken = float("inf"), 0
    while len(recent := list(islice(errors, watched))) == watched:
        taken += watched
        mean = float(torch.stack(recent).mean())
        limit = _DIVERGED if 2 * taken < steps else _DIVERGED_AT_HALF
        is_fine = mean <= max(limit * lowest, _NEGLIGIBLE)  # what is not a number is not
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
    """Fit, step by step: the error of each, as a share of the table's variance."""
    variance = ((rows @ metric).square().mean(-1) @ weights) / len(rows)
    variance = torch.where(variance > 0, variance, 1)  # a table of zeros has none, and can be learned all the same
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
    """Replace the running statistics of batch norm, which lag behind the weights, by those of the final weights."""
    norms = [module for module in scheme.modules() if isinstance(module, BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    if not norms:
        return
    scheme.train()
    for number, part in enumerate(torch.split(ids, batch_size)):
        for norm in norms:
            norm.momentum = 1 / (number + 1)  # a plain mean over the batches
        scheme(part)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


@torch.no_grad()
def _compare(rows: Tensor, scheme: EmbeddingScheme, ids: Tensor, metric: Tensor) -> tuple[float, float]:
    """The share of the rows' variance that the scheme leaves over, and the mean cosine."""
    errors, total, cosines = 0.0, 0.0, 0.0
    for some_ids, some_rows in zip(torch.split(ids, _CHUNK), torch.split(rows, _CHUNK), strict=True):
        vectors = scheme(some_ids)
        errors += float(((vectors - some_rows) @ metric).square().sum())
        total += float((some_rows @ metric).square().sum())
        cosines += float(torch.cosine_similarity(vectors, some_rows, dim=-1).sum())
    return errors / (total or 1), cosines / len(rows)


_STEPS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the odd polynomial whose iteration drives singular values towards 1
_MOMENTUM = 0.95


class Muon(torch.optim.Optimizer):
    """Muon for weights of two or more dimensions (the last two are the matrix), Adam for the rest.

    One learning rate serves both: updates of a matrix are scaled to the size Adam's would have.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(list(parameters), {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
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
    """The nearest matrix with singular values near 1, by a few steps of a Newton–Schulz iteration."""
    a, b, c = _COEFFICIENTS
    stack = matrix.reshape(-1, *matrix.shape[-2:])
    wide = stack.shape[-2] <= stack.shape[-1]
    x = stack if wide else stack.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x if wide else x.mT).reshape(matrix.shape)
