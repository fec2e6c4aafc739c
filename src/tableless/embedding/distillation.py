"""Distillation: a scheme is fitted to the rows of a trained table.

Some schemes can be computed from the rows (`EmbeddingScheme.fit_directly`). Networks learn the rows by
regression.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.idle_cores import on_idle_cores
from ..kernels.resources import keeping_freed_memory
from .finishing import in_float32, round_by_parts
from .fit_progress import FitProgress, FitReporter
from .regression import (
    POOR,
    ROUNDING,
    Cycle,
    Target,
    copy_state,
    default_batch,
    learn_rows,
    rate_for,
    settle_statistics,
)
from .scheme import EmbeddingScheme

# All rows together get this many visits. A single row gets at least and at most so many.
_ALL_VISITS, _FEWEST_VISITS, _MOST_VISITS = 3_000_000, 60, 400
# This many are usual. A small table has more, up to so many for all rows: each of its steps has many of its rows.
_USUAL_VISITS, _VISITS_OF_SMALL_TABLES = 200, 800_000
# Networks learn rows with a mean of zero and this standard deviation, whatever the table's own are. Rows of 0.1 and 0.3
# were fitted a little closer than rows of 1 and 3: the output of a network starts small.
_STANDARD_DEVIATION = 0.3

OnStep = Callable[[int, int, float], None]


class PoorFitWarning(UserWarning):
    """More than a tenth of a table's variance is lost in a scheme that was fitted to it."""


@dataclass(frozen=True)
class Distillation:
    """How well `tableless.distil` has fitted a scheme to a table, and with which settings.

    Attributes:
        unexplained: The sum of squared errors as a share of the variance of the rows around their mean row (both by
            `metric` and `weights`). 0 is a perfect fit; the mean row in place of every row would have 1.
        mean_cosine: The cosine of a row and its fitted vector, averaged over the rows.
        steps: How many training steps led to the result. 0 if the scheme was computed from the rows.
        seconds: How long it took.
        visits: How often each row was visited on the way to the result. None if the scheme was computed from the rows,
            as below.
        batch_size: How many rows a step had.
        learning_rate: The highest learning rate of the attempt whose result was kept.

    Example:
        ```python
        import torch
        from tableless import SCHEMES, distil

        table = torch.nn.Embedding.from_pretrained(torch.randn(500, 4) @ torch.randn(4, 16))
        smaller = SCHEMES["low-rank"].from_budget("1/2", embedding_dim=16, vocab_size=500)
        fit = distil(table, smaller)
        print(f"{fit.unexplained:.0%} is lost, after {fit.steps} steps")  # low-rank is computed: 0 steps
        ```
    """

    unexplained: float
    mean_cosine: float
    steps: int
    seconds: float
    visits: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None


@on_idle_cores()
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
    on_step: OnStep | None = None,
    progress: Callable[[FitProgress], None] | bool | None = None,
) -> Distillation:
    """Fit a scheme to the rows of a trained table. The data that the table was trained on is not needed.

    The scheme is changed in place; a packed one is unpacked. Schemes made of tables are computed (by means, least
    squares or a singular value decomposition). Networks learn the rows step by step; only they use the arguments from
    `visits` on. The scale and the mean of the table do not matter: networks learn rows without them, and get them back
    in their output layer. If a fit diverges, it begins again at half the learning rate. If a fit is worse than the mean
    row, every id gets the mean row. Weights of 8 bits learn as float32, and are rounded by parts at the end
    (finishing.py): that takes some more steps, which are counted from 1 again.

    A `tableless.embedding.PoorFitWarning` says so if more than a tenth of the variance is unexplained.

    Args:
        table: The table, or its rows as a tensor [rows, embedding_dim].
        scheme: The scheme to fit, with as many dimensions as the table.
        ids: The id of each row, int64 [rows]. Row i has the id i unless given.
        metric: A matrix [embedding_dim, n] that says which errors matter: an error e counts as ‖e @ metric‖². Without
            it, all dimensions count the same.
        weights: How much each row counts, [rows]. All the same unless given.
        visits: How often each row is visited at most. With far fewer visits than the default a network learns little
            but what all rows have in common. Unless given the error decides: a row is visited 200 times; up to 400
            times if the table has fewer than 4,000 rows, and down to 60 times if it has more than 15,000. If more than
            a tenth is unexplained then and the error was still falling fast, the fit begins again with four times the
            visits. A fit that is as close as it can be ends before.
        batch_size: Rows of a step. Unless given an eighth of the rows, within 2048 and 8192 for each expert.
        learning_rate: The highest learning rate of Muon. Unless given it follows from the width of the network.
        seed: The order of the rows follows from it.
        on_step: Is called after every step with its number, the number of all steps, and the error of the step.
        progress: Is called after every step with a `tableless.embedding.FitProgress`, which knows the time left. Unless
            given, there is a bar if standard error is a terminal and rich is installed; and if the fit will take more
            than a minute, a line of the log says how long. False switches both off.

    Returns:
        How well it went. The scheme is in eval mode then.

    Raises:
        ValueError: The table, `ids` and the scheme do not have matching shapes.

    Example:
        ```python
        import torch
        from tableless import DeepHashEmbedding, distil

        rows = torch.randn(300, 2) @ torch.randn(2, 8)
        table = torch.nn.Embedding.from_pretrained(rows)  # in place of one that you have trained
        network = DeepHashEmbedding.from_budget("1/1", embedding_dim=8, vocab_size=300)
        print(distil(table, network).unexplained)  # the share that is lost
        ```
    """
    rows = (table.weight if isinstance(table, (nn.Embedding, nn.EmbeddingBag)) else table).detach()
    ids = torch.arange(len(rows)) if ids is None else ids
    if rows.shape != (len(ids), scheme.embedding_dim):
        raise ValueError(f"the table has shape {tuple(rows.shape)}; expected [{len(ids)}, {scheme.embedding_dim}]")
    start = time.perf_counter()
    scheme.unpack()
    target = _target(rows, ids, metric, weights, device=next(scheme.parameters()).device)
    learner, left = scheme.fit_directly(target.ids, target.rows, metric=target.metric, weights=target.weights)
    steps, settings, is_mean = 0, dict[str, Any](), False
    if left.any():
        own = target.only(left)
        batch_size = batch_size or default_batch(len(own.rows), learner.num_experts)
        given = {"batch_size": batch_size, "learning_rate": learning_rate or rate_for(learner), "seed": seed}
        with FitReporter(progress, len(own.rows)) as reporter, in_float32(learner) as rounds_at_end:
            cycle, is_mean = _learn(learner, own, visits, given, on_step, reporter)
            if rounds_at_end and not is_mean:
                errors: dict[str, Any] = {"metric": own.metric, "weights": own.weights}
                round_by_parts(learner, own.ids, **errors, seed=seed, on_step=_teller(on_step, reporter))
        steps = cycle.steps
        settings = {"visits": cycle.visits, "batch_size": batch_size, "learning_rate": cycle.learning_rate}
    scheme.eval()
    unexplained, cosine = _compare(scheme, target)
    result = Distillation(unexplained, cosine, steps, time.perf_counter() - start, **settings)
    _warn_if_poor(result, is_mean=is_mean)
    return result


def default_visits(num_rows: int) -> int:
    """How often each row is visited before the error is looked at."""
    wanted = max(_USUAL_VISITS, _VISITS_OF_SMALL_TABLES // max(1, num_rows))
    return max(_FEWEST_VISITS, min(_MOST_VISITS, wanted, _ALL_VISITS // max(1, num_rows)))


def _target(
    rows: Tensor, ids: Tensor, metric: Tensor | None, weights: Tensor | None, *, device: torch.device
) -> Target:
    rows = rows.to(device, torch.float32)
    metric = torch.eye(rows.shape[-1]) if metric is None else metric
    weights = torch.ones(len(rows)) if weights is None else weights
    return Target(ids.to(device), rows, metric.to(rows), weights.to(rows))


def _learn(
    learner: EmbeddingScheme,
    target: Target,
    visits: int | None,
    given: Mapping[str, Any],
    on_step: OnStep | None,
    reporter: FitReporter,
) -> tuple[Cycle, bool]:
    """Learn the rows without their mean and scale, which the output layer gets afterwards (if the learner has one).

    Returns how it went, and whether every id has the mean row now, because what was learned was worse.
    """
    layer = learner.output_layer
    mean, spread, beginning = target.mean(), target.spread(), copy_state(learner)
    scale = spread / _STANDARD_DEVIATION if spread else 1.0
    cycle = learn_rows(
        learner,
        target if layer is None else target.standardised(mean, scale),
        visits=visits or default_visits(len(target.rows)),
        may_take_longer=visits is None,
        **given,
        on_step=_teller(on_step, reporter),
        say=reporter.say,
    )
    settle_statistics(learner, target.ids)
    learner.eval()
    if layer is None:
        return cycle, False
    with torch.no_grad():
        weight, bias = layer
        weight.mul_(scale)
        bias.mul_(scale).add_(mean.to(bias))
        if spread and _compare(learner, target)[0] <= 1:  # not so if it is NaN
            return cycle, False
        learner.load_state_dict(beginning)  # what was learned may be NaN
        weight.zero_()
        bias.copy_(mean.to(bias).expand_as(bias))
    return cycle, True


def _teller(on_step: OnStep | None, reporter: FitReporter) -> OnStep | None:
    """Tells both of a step; None if nobody listens, so that the error need not be read."""
    if reporter.is_silent:
        return on_step

    def tell(step: int, steps: int, error: float) -> None:
        reporter.on_step(step, steps, error)
        if on_step:
            on_step(step, steps, error)

    return tell


@torch.no_grad()
def _compare(scheme: EmbeddingScheme, target: Target) -> tuple[float, float]:
    """The errors of the scheme as a share of the variance around the mean row, and the mean cosine."""
    metric, mean = target.metric.double(), target.mean()
    errors, variance, squares, cosines = 0.0, 0.0, 0.0, 0.0
    for part in target.parts():
        vectors, rows, weights = scheme(part.ids).double(), part.rows.double(), part.weights.double()
        errors += float(weights @ ((vectors - rows) @ metric).square().sum(-1))
        variance += float(weights @ ((rows - mean) @ metric).square().sum(-1))
        squares += float(weights @ (rows @ metric).square().sum(-1))
        cosines += float(torch.cosine_similarity(vectors, rows, dim=-1).sum())
    # Rows that are the same have no variance but that of rounding. Their errors are a share of their squares.
    return errors / (variance if variance > ROUNDING * squares else squares or 1), cosines / len(target.rows)


def _warn_if_poor(result: Distillation, *, is_mean: bool) -> None:
    if result.unexplained <= POOR:
        return
    more = "" if result.visits is None else f", more visits (each row had {result.visits})"
    mean = " The network was no nearer to the rows than their mean row, so every id has the mean row." * is_mean
    warnings.warn(
        f"{result.unexplained:.0%} of the table's variance is unexplained.{mean} What may help: a larger budget for "
        f"the scheme{more}, or another scheme",
        PoorFitWarning,
        stacklevel=5,  # the caller of `distil`, which is itself wrapped twice
    )
