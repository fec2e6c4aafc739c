"""Distillation: a scheme is fitted to the rows of a trained table.

Some schemes can be computed from the rows (`EmbeddingScheme.fit_directly`). Networks learn the rows by
regression.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.resources import keeping_freed_memory
from .regression import default_batch, learn_rows, rate_for, settle_statistics
from .scheme import EmbeddingScheme

# All rows together get this many visits. A single row gets at least and at most so many.
_ALL_VISITS, _FEWEST_VISITS, _MOST_VISITS = 3_000_000, 60, 400
_CHUNK = 16_384  # rows that are compared at a time


@dataclass(frozen=True)
class Distillation:
    """How well `tableless.distil` has fitted a scheme to a table, and with which settings.

    Attributes:
        unexplained: The sum of squared errors as a share of the sum of squares of the table (both by `metric`): 0 is a
            perfect fit.
        mean_cosine: The cosine of a row and its fitted vector, averaged over the rows.
        steps: How many training steps it took. 0 if the scheme was computed from the rows.
        seconds: How long it took.
        visits: How often each row was visited. None if the scheme was computed from the rows, as below.
        batch_size: How many rows a step had.
        learning_rate: The highest learning rate of the attempt whose result was kept.

    Example:
        ```python
        import torch
        from tableless import SCHEMES, distil

        table = torch.nn.Embedding(500, 16)
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
    """Fit a scheme to the rows of a trained table. The data that the table was trained on is not needed.

    The scheme is changed in place. Schemes made of tables are computed (by means, least squares or a singular value
    decomposition). Networks learn the rows step by step; only they use the arguments from `visits` on. If a fit
    diverges, it begins again at half the learning rate.

    Args:
        table: The table, or its rows as a tensor [rows, embedding_dim].
        scheme: The scheme to fit, with as many dimensions as the table.
        ids: The id of each row, int64 [rows]. Row i has the id i unless given.
        metric: A matrix [embedding_dim, n] that says which errors matter: an error e counts as ‖e @ metric‖². Without
            it, all dimensions count the same.
        weights: How much each row counts, [rows]. All the same unless given.
        visits: How often each row is visited. Unless given 400 times, and less often, down to 60 times, if the table
            has more than 7,500 rows. More visits give a closer fit. With far fewer than the default a network learns
            little but what all rows have in common.
        batch_size: Rows of a step. Unless given an eighth of the rows, within 2048 and 8192 for each expert.
        learning_rate: The highest learning rate of Muon. Unless given it follows from the width of the network.
        seed: The order of the rows follows from it.
        on_step: Is called after every step with its number, the number of all steps, and the error of the step.

    Returns:
        How well it went. The scheme is in eval mode then.

    Raises:
        ValueError: The table, `ids` and the scheme do not have matching shapes.

    Example:
        ```python
        import torch
        from tableless import DeepHashEmbedding, distil

        table = torch.nn.Embedding(300, 8)  # in place of one that you have trained
        network = DeepHashEmbedding.from_budget("1/1", embedding_dim=8, vocab_size=300)
        print(distil(table, network).unexplained)  # the share that is lost
        ```
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
        learning_rate = rate_for(learner)
    steps, settings = 0, dict[str, Any]()
    if left.any():
        batch_size = batch_size or default_batch(int(left.sum()), learner.num_experts)
        own = ids[left], rows[left], metric, weights[left]
        steps, rate = learn_rows(learner, *own, visits, batch_size, learning_rate, seed, on_step)
        settle_statistics(learner, ids[left])
        settings = {"visits": visits, "batch_size": batch_size, "learning_rate": rate}
    scheme.eval()
    unexplained, cosine = _compare(rows, scheme, ids, metric)
    return Distillation(unexplained, cosine, steps, time.perf_counter() - start, **settings)


@torch.no_grad()
def _compare(rows: Tensor, scheme: EmbeddingScheme, ids: Tensor, metric: Tensor) -> tuple[float, float]:
    """The errors of the scheme as a share of the rows' squares, and the mean cosine."""
    errors, total, cosines = 0.0, 0.0, 0.0
    for some_ids, some_rows in zip(torch.split(ids, _CHUNK), torch.split(rows, _CHUNK), strict=True):
        vectors = scheme(some_ids)
        errors += float(((vectors - some_rows) @ metric).square().sum())
        total += float((some_rows @ metric).square().sum())
        cosines += float(torch.cosine_similarity(vectors, some_rows, dim=-1).sum())
    return errors / (total or 1), cosines / len(rows)
