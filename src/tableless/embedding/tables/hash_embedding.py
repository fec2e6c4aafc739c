"""Hash embedding: an id's vector is a sum of a few shared rows, with weights that belong to the id."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from ..budget import Budget, fit_to_budget, resolve_budget
from ..hashing import HashFamily, derive_seed
from ..scheme import INITIAL_STD, EmbeddingScheme, normal, require_known, seeded
from .shared_rows import SharedRows

_RIDGE = 1e-4  # of a row's square: keeps weights small if two rows point the same way
_ENOUGH, _MOST_ROUNDS = 0.001, 200  # the last round is the one that lowers the error by less than this share
_CHUNK = 16_384  # vectors whose rows are held at once


class HashEmbedding(EmbeddingScheme):
    """A weighted sum of `num_hashes` rows of a shared table of `num_rows`.

    `weights="dedicated"` gives each of `vocab_size` ids weights of its own, as the paper's appendix B.2 does.
    `weights="hashed"` finds them by one more hash into as many places, so that new ids have weights, too.
    """

    open_vocabulary = False
    old_defaults: ClassVar[Mapping[str, Any]] = {"mixed": False}

    def __init__(
        self,
        embedding_dim: int,
        *,
        vocab_size: int,
        num_rows: int,
        num_hashes: int = 2,
        weights: Literal["dedicated", "hashed"] = "dedicated",
        initial_std: float = INITIAL_STD,
        seed: int = 0,
        mixed: bool = True,
    ) -> None:
        super().__init__()
        if weights not in ("dedicated", "hashed"):
            raise ValueError(f"weights is {weights!r}; it must be 'dedicated' or 'hashed'")
        self.open_vocabulary = weights == "hashed"
        self.embedding_dim = embedding_dim
        self.vocab_size = vocab_size
        self.num_rows = num_rows
        self.num_hashes = num_hashes
        self.weights = weights
        self.initial_std = initial_std
        self.seed = seed
        self.mixed = mixed
        self.hashes = HashFamily(num_hashes, num_rows, seed, mixed=mixed)
        if weights == "hashed":
            self.weight_hash = HashFamily(1, vocab_size, derive_seed(seed, "importance"), mixed=mixed)
        row_std = initial_std / math.sqrt(num_hashes)
        self.table = normal(num_rows, embedding_dim, std=row_std, generator=seeded(seed))
        self.importance = nn.Parameter(torch.ones(vocab_size, num_hashes))  # starts as a plain sum, as in bloom

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        places = self._places(ids)
        rows = F.embedding(self.hashes(ids), self.table)  # [..., num_hashes, embedding_dim]
        return (rows * F.embedding(places, self.importance).unsqueeze(-1)).sum(-2)

    def _places(self, ids: Tensor) -> Tensor:
        """Where the weights of each id are."""
        if self.open_vocabulary:
            return self.weight_hash(ids)[..., 0]
        require_known(ids, self.vocab_size)
        return ids

    @torch.no_grad()
    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """In turn: the best shared rows for given weights, and the best weights for given rows."""
        table, importance = _fit_by_turns(
            self.hashes(ids),
            self._places(ids),
            rows,
            metric=metric,
            weights=weights,
            table=self.table,
            importance=torch.ones_like(self.importance),
        )
        self.table.copy_(table)
        self.importance.copy_(importance)
        return self, torch.zeros_like(ids, dtype=torch.bool)

    @classmethod
    def from_budget(
        cls,
        budget: Budget,
        *,
        embedding_dim: int,
        vocab_size: int,
        seed: int = 0,
        num_hashes: int = 2,
        weights: Literal["dedicated", "hashed"] = "dedicated",
    ) -> Self:
        """As many rows as the budget pays for, after `num_hashes` weights for each id."""
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
        return fit_to_budget(
            lambda rows: cls(
                embedding_dim,
                vocab_size=vocab_size,
                num_rows=rows,
                num_hashes=num_hashes,
                weights=weights,
                seed=seed,
            ),
            allowed,
        )


def _fit_by_turns(
    row_places: Tensor,
    weight_places: Tensor,
    rows: Tensor,
    *,
    metric: Tensor,
    weights: Tensor,
    table: Tensor,
    importance: Tensor,
) -> tuple[Tensor, Tensor]:
    """A table, and the importances by which its rows are summed, so that the sums are near `rows` [n, dim].

    Vector i is the sum of table[row_places[i]] [look-ups, dim] times importance[weight_places[i]] [look-ups]. An error
    e of it counts weights[i] · ‖e @ metric‖². The search begins at `table` and `importance`. Importances of one are the
    best start: on trained tables the search ends with a lower error than from random ones (docs/decisions.md).
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
    # Only the product counts. With importances of size one, the table has the size that training starts with.
    size = F.embedding(weight_places, importance).square().mean().sqrt()
    return (table * size, importance / size) if size > 0 else (table, importance)


def _best_importance(
    table: Tensor, row_places: Tensor, weight_places: Tensor, targets: Tensor, *, weights: Tensor, importance: Tensor
) -> tuple[Tensor, float]:
    """The best importances, by a small least-squares problem for each place of weights, and the error that is left."""
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
