"""Tables whose rows are shared by several ids: the vector of an id is a sum of rows.

`sum_of_rows` computes such vectors. `set_means` and `SharedRows` find the best rows for given vectors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# A sum is computed as a product if the table has at most this many rows for each look-up. Measured on a CPU in
# training, at 32 dimensions, with tables of 926 and 1510 rows: both ways take the same time at 20 to 30.
_PRODUCT_IS_QUICKER = 16
# With at most this many look-ups the equations are listed (look-ups² numbers for each vector), which makes each step of
# the iteration several times faster. With more, the list would not fit into memory.
_FEW_LOOK_UPS = 4
# The equations are one small dense matrix if the table has at most _FEW_ROWS rows (few look-ups) or at most
# _ROWS_TO_A_LOOK_UP rows for each look-up (many look-ups).
_FEW_ROWS, _ROWS_TO_A_LOOK_UP = 1024, 16
_RIDGE = 1e-6  # rows that only occur together have many solutions: this chooses the smallest
_ENOUGH, _MOST_STEPS = 1e-6, 100  # a step that explains less than this share of the targets is the last
_CHUNK = 4096  # vectors whose counts of rows are held at once


def sum_of_rows(table: Tensor, rows: Tensor) -> Tensor:
    """[num_rows, dim], int64 [..., count] -> [..., dim].

    Hundreds of look-ups for each id are slow, and every row takes memory. So a small table is multiplied by how often
    each id has each row, which takes `num_rows` numbers for each id, whatever the count is.
    """
    if torch.compiler.is_exporting() or table.shape[0] > _PRODUCT_IS_QUICKER * rows.shape[-1]:
        return F.embedding(rows, table).sum(-2)
    how_often = table.new_zeros(*rows.shape[:-1], table.shape[0])
    how_often.scatter_add_(-1, rows, table.new_ones(()).expand(rows.shape))
    return how_often @ table


def mean_of_sharers(places: Tensor, rows: Tensor, weights: Tensor, num_places: int) -> tuple[Tensor, Tensor]:
    """Places [n], rows [n, dim], weights [n] -> each place's weighted mean [num_places, dim] and its total weight."""
    counts = weights.double()  # so that the mean of one row is that row, to the bit
    sums = counts.new_zeros(num_places, rows.shape[-1])
    sums.index_add_(0, places, rows * counts.unsqueeze(-1))
    totals = counts.new_zeros(num_places).index_add_(0, places, counts)
    means = sums / torch.where(totals > 0, totals, 1).unsqueeze(-1)
    return means.to(rows), totals.to(rows)


def set_means(table: Tensor, places: Tensor, rows: Tensor, weights: Tensor) -> None:
    """Set the rows of `table` that `places` [n] name to the weighted means of the `rows` [n, dim] that belong there."""
    means, totals = mean_of_sharers(places, rows, weights, len(table))
    table.copy_(torch.where((totals > 0).unsqueeze(-1), means.to(table), table))


class SharedRows:
    """The least-squares problem of a table of `num_rows`: vector i is the sum of the rows `places[i]` [look-ups].

    It keeps everything that does not depend on the vectors, so that it can be solved several times.
    """

    def __init__(self, places: Tensor, num_rows: int) -> None:
        self.places = places
        self.num_rows = num_rows
        self._pairs = _Pairs(places, num_rows) if places.shape[-1] <= _FEW_LOOK_UPS else None
        few = _FEW_ROWS if self._pairs is not None else _ROWS_TO_A_LOOK_UP * places.shape[-1]
        self._is_small = num_rows <= few

    def solve(self, targets: Tensor, *, weights: Tensor, factors: Tensor | None = None, start: Tensor) -> Tensor:
        """The table whose sums are nearest to `targets` [n, dim]. An error of vector i counts `weights[i]`.

        `factors` [n, look-ups] multiply the rows before they are summed (ones, if not given). The search begins at
        `start` [num_rows, dim], and rows that no vector uses stay as they are there.
        """
        if not len(targets):
            return start
        factors = targets.new_ones(self.places.shape) if factors is None else factors
        if self._is_small:
            targets, weights, factors = targets.double(), weights.double(), factors.double()
        weighted = factors * weights.unsqueeze(-1)
        wanted = self._collect(targets, weighted)
        if self._is_small:
            return _solve_directly(self._matrix(weighted, factors), wanted, start)
        diagonal = self._collect(wanted.new_ones(len(targets), 1), weighted * factors).squeeze(-1)
        enough = _ENOUGH * float((targets.square().sum(-1) * weights).sum())
        return conjugate_gradients(self._product(weighted, factors), wanted, diagonal, start, enough)

    def _matrix(self, weighted: Tensor, factors: Tensor) -> Tensor:
        """The equations of a small table as a dense matrix."""
        if self._pairs is not None:
            return self._pairs.matrix(weighted, factors)
        matrix = weighted.new_zeros(self.num_rows, self.num_rows)
        for start in range(0, len(weighted), _CHUNK):
            part = slice(start, start + _CHUNK)
            none = weighted.new_zeros(len(weighted[part]), self.num_rows)
            how_often = none.scatter_add(-1, self.places[part], factors[part])
            matrix += none.scatter_add(-1, self.places[part], weighted[part]).mT @ how_often
        return matrix

    def _product(self, weighted: Tensor, factors: Tensor) -> Callable[[Tensor], Tensor]:
        """The equations as a function: a table -> the left-hand side."""
        if self._pairs is not None:
            return self._pairs.product(weighted, factors)

        def times(table: Tensor) -> Tensor:
            sums = F.embedding_bag(self.places, table, mode="sum", per_sample_weights=factors)
            return self._collect(sums, weighted)

        return times

    def _collect(self, vectors: Tensor, factors: Tensor) -> Tensor:
        """For each row the sum of the vectors that use it, times their factors: [n, dim] -> [num_rows, dim]."""
        rows = vectors.new_zeros(self.num_rows, vectors.shape[-1])
        for places, factor in zip(self.places.unbind(-1), factors.unbind(-1), strict=True):
            rows.index_add_(0, places, vectors * factor.unsqueeze(-1))
        return rows


class _Pairs:
    """Pairs of rows that occur in the same sum. They are the non-zero entries of the equations, kept sorted."""

    def __init__(self, places: Tensor, num_rows: int) -> None:
        pairs = places.unsqueeze(-1) * num_rows + places.unsqueeze(-2)  # [n, look-ups, look-ups]
        self._pairs, self._where = torch.unique(pairs.reshape(-1), return_inverse=True)
        self._num_rows = num_rows

    def matrix(self, weighted: Tensor, factors: Tensor) -> Tensor:
        """All equations as a dense matrix."""
        none = weighted.new_zeros(self._num_rows**2)
        return none.index_put((self._pairs,), self._entries(weighted, factors)).view(self._num_rows, self._num_rows)

    def product(self, weighted: Tensor, factors: Tensor) -> Callable[[Tensor], Tensor]:
        """The equations as a function: a table -> the left-hand side."""
        entries = self._entries(weighted, factors)
        first = torch.arange(self._num_rows, device=entries.device) * self._num_rows
        others, starts = self._pairs % self._num_rows, torch.searchsorted(self._pairs, first)
        return lambda table: F.embedding_bag(others, table, starts, mode="sum", per_sample_weights=entries)

    def _entries(self, weighted: Tensor, factors: Tensor) -> Tensor:
        values = (weighted.unsqueeze(-1) * factors.unsqueeze(-2)).reshape(-1)
        return values.new_zeros(len(self._pairs)).index_add_(0, self._where, values)


def _solve_directly(matrix: Tensor, wanted: Tensor, start: Tensor) -> Tensor:
    diagonal = matrix.diagonal().clone()
    is_used = diagonal > 0
    matrix.diagonal().copy_(torch.where(is_used, diagonal * (1 + _RIDGE), 1))
    found = torch.cholesky_solve(wanted, torch.linalg.cholesky(matrix))
    return torch.where(is_used.unsqueeze(-1), found.to(start), start)


def conjugate_gradients(
    times: Callable[[Tensor], Tensor], wanted: Tensor, diagonal: Tensor, start: Tensor, enough: float
) -> Tensor:
    """The table with `times(table)` = `wanted`, until a step lowers the sum of squares by less than `enough`."""
    # The equations of a row are as large as many vectors use it. Divided by the diagonal all are of one size, and few
    # steps are enough.
    ridge = _RIDGE * diagonal.unsqueeze(-1)  # zero for rows that no vector uses: they stay as they are
    diagonal = torch.where(diagonal > 0, diagonal, 1).unsqueeze(-1)
    smallest = torch.finfo(start.dtype).tiny
    table = start.clone()
    residual = wanted - times(table) - ridge * table
    scaled = residual / diagonal
    direction, square = scaled.clone(), (residual * scaled).sum(0)
    for _ in range(_MOST_STEPS):
        along = times(direction) + ridge * direction
        step = square / (direction * along).sum(0).clamp(min=smallest)
        table += step * direction
        if float((step * square).sum()) <= enough:
            break
        residual -= step * along
        scaled = residual / diagonal
        last, square = square, (residual * scaled).sum(0)
        direction = scaled + square / last.clamp(min=smallest) * direction
    return table


def one_row_each(ids: Tensor, rows: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Distinct ids, the order that sorts them, and the row and weight of each: the mean of those of one id.

    Each list of millions of ids takes as much memory as their codes, so few are made. Without repeated ids the rows
    stay where they are: they may be a file that is larger than memory.
    """
    order = torch.from_numpy(np.argsort(ids.numpy()))  # torch takes twice the memory for it
    if not (ordered := ids[order])[1:].eq(ordered[:-1]).any():
        return ids, order, rows, weights
    distinct, place = torch.unique(ids, return_inverse=True)
    return distinct, torch.arange(len(distinct)), *mean_of_sharers(place, rows, weights, len(distinct))
