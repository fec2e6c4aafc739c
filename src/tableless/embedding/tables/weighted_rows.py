"""The best rows and weights for given vectors, where each vector is a weighted sum of a few shared rows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .least_squares import SharedRows

_RIDGE = 1e-4  # of a row's square: where two rows point the same way, weights of opposite signs must not explode
_ENOUGH, _MOST_ROUNDS = 0.001, 200  # a round that lowers the error by less than this share of it is the last
_CHUNK = 16_384  # vectors whose rows are held at once


def fit_by_turns(
    row_places: Tensor,
    weight_places: Tensor,
    rows: Tensor,
    *,
    metric: Tensor,
    weights: Tensor,
    table: Tensor,
    importance: Tensor,
) -> tuple[Tensor, Tensor]:
    """A table and the importances of its rows, so that their weighted sums are near `rows` [n, dim].

    Vector i is the sum of table[row_places[i]] [look-ups, dim] times importance[weight_places[i]] [look-ups]; an error
    e of it counts weights[i] · ‖e @ metric‖². The search begins at `table` and `importance`: with importances of one
    (a plain sum) it ends lower on trained tables than with random ones, and on random tables as low
    (docs/decisions.md).
    """
    problem = SharedRows(row_places, len(table))
    targets = rows @ metric
    last = float("inf")
    for _ in range(_MOST_ROUNDS):
        factors = F.embedding(weight_places, importance)
        table = problem.solve(rows, weights=weights, factors=factors, start=table)
        importance, error = _best_importance(
            table @ metric, row_places, weight_places, targets, weights=weights, importance=importance
        )
        if error > (1 - _ENOUGH) * last:
            break
        last = error
    # Only the product counts: importances of size one leave the table the size that it starts with in training.
    size = F.embedding(weight_places, importance).square().mean().sqrt()
    return (table * size, importance / size) if size > 0 else (table, importance)


def _best_importance(
    table: Tensor, row_places: Tensor, weight_places: Tensor, targets: Tensor, *, weights: Tensor, importance: Tensor
) -> tuple[Tensor, float]:
    """For each id (or those that share weights) a small least-squares problem; returns the error that is left, too."""
    count = importance.shape[-1]
    equations = table.new_zeros(len(importance), count, count, dtype=torch.float64)
    wanted = table.new_zeros(len(importance), count, dtype=torch.float64)
    total = 0.0
    for start in range(0, len(targets), _CHUNK):
        part = slice(start, start + _CHUNK)
        own = F.embedding(row_places[part], table).double()  # [chunk, look-ups, n]
        weighted = own * weights[part, None, None].double()
        equations.index_add_(0, weight_places[part], weighted @ own.mT)
        wanted.index_add_(0, weight_places[part], (weighted @ targets[part].double().unsqueeze(-1)).squeeze(-1))
        total += float((targets[part].square().sum(-1) * weights[part]).sum())
    squares = equations.diagonal(dim1=-2, dim2=-1)
    is_used = squares.sum(-1, keepdim=True) > 0
    ridge = torch.where(is_used, _RIDGE * squares.mean(-1, keepdim=True), 1).expand_as(squares)
    found = torch.linalg.solve(equations + torch.diag_embed(ridge), wanted)
    explained = 2 * found * wanted - found * (equations @ found.unsqueeze(-1)).squeeze(-1)
    return torch.where(is_used, found.to(importance), importance), total - float(explained.sum())
