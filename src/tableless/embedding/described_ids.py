"""Ids of which nothing but features are known: a new film, whose genres and year are there before anyone has seen it.

No scheme can say anything of an id that it was not trained on. But ids with like features have like vectors. So a
linear map from the features to the vectors of the known ids is fitted by ridge regression, in seconds, and gives the
vectors of ids that have features alone. A network that saw the features in the code, with its hashes left out, was
further off (docs/tried.md).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from .budget import Budget
from .id_batches import checked_ids
from .ids import find, to_ids
from .scheme import EmbeddingScheme, Precision, Served
from .side_features import SideFeatures

_PENALTIES = (1.0, 10.0, 100.0, 1000.0)  # of the regression, as so many ids of average weight
_FOLDS = 5
_CHUNK = 65_536


class WithDescribedIds(EmbeddingScheme):
    """A trained scheme, and vectors of described ids: those that were not in training, and of which features are known.

    It takes ids. A closed scheme inside gets its rows; an id that it has no row for, and that nobody has described, has
    the mean vector of the known ids.

    Args:
        inner: The trained scheme.
        num_features: Columns of a row of features.
        known_ids: The id of each row of a closed scheme, int64 [rows]. None for an open one, which is asked by id.

    Example:
        ```python
        import torch
        from tableless import SCHEMES
        from tableless.embedding.described_ids import WithDescribedIds

        films = SCHEMES["full"].from_budget("1/1", embedding_dim=8, vocab_size=100)  # in place of a trained one
        genres = torch.randint(0, 2, (100, 5)).float()
        known = torch.arange(100) + 1_000
        scheme = WithDescribedIds(films, num_features=5, known_ids=known)
        scheme.fit_map(known, genres)
        scheme.add([77], [[1.0, 0.0, 0.0, 1.0, 0.0]])  # a new film
        vectors = scheme(torch.tensor([1_003, 77]))  # [2, 8]
        ```
    """

    open_vocabulary = True
    known_ids: Tensor | None
    known_rows: Tensor | None

    def __init__(self, inner: EmbeddingScheme, *, num_features: int, known_ids: Tensor | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.embedding_dim = inner.embedding_dim
        self.is_computed = inner.is_computed
        self.num_experts = inner.num_experts
        self.num_features = num_features
        if inner.open_vocabulary:
            self.known_ids = self.known_rows = None
        else:
            count = inner.num_known_ids or 0
            listed = torch.zeros(count, dtype=torch.int64) if known_ids is None else known_ids
            self.register_buffer("known_ids", listed.sort().values)
            self.register_buffer("known_rows", listed.argsort().to(torch.int32))
        self.described = SideFeatures(num_features, row_bits=8)
        self.map = nn.Parameter(torch.zeros(num_features + 1, inner.embedding_dim), requires_grad=False)
        self.register_buffer("mean", torch.zeros(inner.embedding_dim))
        self.mean: Tensor

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 or int32 [...] -> [..., embedding_dim]."""
        flat = checked_ids(ids).reshape(-1)
        return self._filled_in(flat, self.inner).view(*ids.shape, self.embedding_dim)

    def add(self, ids: Any, features: Any) -> None:
        """Describe ids by rows of features [n, num_features]; an id that was described before gets its new row."""
        larger = copy.deepcopy(self.described)
        larger.add(ids, features)
        self.described = larger  # in one step: other threads may be asking

    def is_described(self, ids: Tensor) -> Tensor:
        """Which ids are described: int64 [...] -> bool [...]."""
        return find(ids, self.described.ids)[1]

    @torch.no_grad()
    def fit_map(self, ids: Tensor, features: Tensor, *, weights: Tensor | None = None) -> float:
        """Fit the map to the vectors of known ids [n] and their features [n, num_features].

        `weights` [n] say how much each counts. How strongly the map is held back is chosen by leaving out a fifth of
        the ids, five times. Returns the share of the variance of the vectors left out that it does not explain.
        """
        weights = torch.ones(len(ids)) if weights is None else weights
        weights = weights.double() / weights.double().mean().clamp_min(1e-12)
        folds = [_Sums(self.num_features + 1, self.embedding_dim) for _ in range(_FOLDS)]
        for number, (rows, vectors, own) in enumerate(self._parts(ids, features, weights)):
            place = (torch.arange(len(rows)) + number * _CHUNK) % _FOLDS
            for fold, sums in enumerate(folds):
                sums.add(*(part[place == fold] for part in (rows, vectors, own)))
        whole = _Sums.together(folds)
        errors = [sum(_error_without(fold, whole, penalty) for fold in folds) for penalty in _PENALTIES]
        best = min(range(len(errors)), key=errors.__getitem__)
        self.map.copy_(whole.solve(_PENALTIES[best]).to(self.map))
        self.mean.copy_(whole.mean().to(self.mean))
        return float(errors[best] / whole.variance().clamp_min(1e-30))

    def served(self, precision: Precision, sample_ids: Tensor) -> Served:
        """The inner scheme as it is served."""
        inner = self.inner.served(precision, sample_ids)
        return Served(lambda ids: self._filled_in(ids, inner.vectors), inner.precision)

    def exported(self) -> nn.Module:
        """The inner scheme as it is exported."""
        own = copy.deepcopy(self)
        own._modules["inner"] = own.inner.exported()
        return own

    @property
    def lists_ids(self) -> bool:
        """It must be known which ids were in training: only others can be described."""
        return True

    @property
    def num_parameters(self) -> int:
        """Those of the inner scheme, and the map."""
        return self.inner.num_parameters + self.map.numel()

    def bytes_by_part(self) -> dict[str, int]:
        """As the inner scheme, and what is stored for described ids. The list of known ids is the map of the inner."""
        own = [self.described.ids, self.described.rows, self.map, self.mean]
        return {**self.inner.bytes_by_part(), "described ids": sum(each.numel() * each.element_size() for each in own)}

    def pack(self) -> None:
        """Pack the inner scheme."""
        self.inner.pack()

    def unpack(self) -> None:
        """Unpack the inner scheme."""
        self.inner.unpack()

    def stored(self) -> EmbeddingScheme:
        """With the inner scheme packed."""
        copied = copy.deepcopy(self)
        copied.pack()
        return copied

    @property
    def config(self) -> dict[str, Any]:
        """What the constructor takes beside the inner scheme; the ids are among the weights."""
        return {"num_features": self.num_features}

    @classmethod
    def from_budget(cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0) -> Self:
        """Refused: it is built around a scheme that was trained."""
        raise ValueError("described ids are added to a scheme that is trained; take one of tableless.SCHEMES")

    def _filled_in(self, ids: Tensor, inner: Any) -> Tensor:
        """Vectors [n, embedding_dim] of ids [n]: of described ids by the map, of others by `inner`."""
        if self.known_ids is None or self.known_rows is None:
            vectors = inner(ids)
        else:
            position, known = find(ids, self.known_ids)
            vectors = inner(self.known_rows[position].to(torch.int64))
            vectors = torch.where(known.unsqueeze(-1), vectors, self.mean.to(vectors))
        if not self.described.ids.shape[0]:
            return vectors
        rows = self.described(ids)
        return torch.where(rows[..., -1:] > 0, (rows @ self.map).to(vectors), vectors)

    def _parts(self, ids: Tensor, features: Tensor, weights: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for some in zip(*(torch.split(part, _CHUNK) for part in (to_ids(ids), features, weights)), strict=True):
            rows = torch.cat([some[1].double(), torch.ones(len(some[1]), 1, dtype=torch.float64)], dim=-1)
            yield rows, self(some[0]).double().cpu(), some[2]


class _Sums:
    """What a weighted ridge regression needs of its data: sums that can be added and taken away."""

    def __init__(self, columns: int, dim: int) -> None:
        self.squares = torch.zeros(columns, columns, dtype=torch.float64)
        self.products = torch.zeros(columns, dim, dtype=torch.float64)
        self.vector_squares = torch.zeros((), dtype=torch.float64)

    def add(self, rows: Tensor, vectors: Tensor, weights: Tensor) -> None:
        """Rows [n, columns], the last column all ones; vectors [n, dim]; weights [n]."""
        weighted = rows * weights.unsqueeze(-1)
        self.squares += weighted.T @ rows
        self.products += weighted.T @ vectors
        self.vector_squares += (vectors.square().sum(-1) * weights).sum()

    @classmethod
    def together(cls, parts: list[_Sums], *, sign: float = 1.0) -> _Sums:
        """The sum of several; with `sign` -1, the first without the others."""
        result = copy.deepcopy(parts[0])
        for part in parts[1:]:
            result.squares += sign * part.squares
            result.products += sign * part.products
            result.vector_squares += sign * part.vector_squares
        return result

    def solve(self, penalty: float) -> Tensor:
        """The map [columns, dim]. The last column, the intercept, is not held back."""
        held_back = torch.full((len(self.squares),), penalty, dtype=torch.float64)
        held_back[-1] = 1e-6
        return torch.linalg.solve(self.squares + torch.diag(held_back), self.products)

    def mean(self) -> Tensor:
        """The mean vector [dim]."""
        return self.products[-1] / self.squares[-1, -1].clamp_min(1e-30)

    def error(self, solution: Tensor) -> Tensor:
        """The sum of squared errors of a map."""
        explained = (solution * (self.squares @ solution - 2 * self.products)).sum()
        return self.vector_squares + explained

    def variance(self) -> Tensor:
        """The sum of squares around the mean vector."""
        return self.vector_squares - self.mean().square().sum() * self.squares[-1, -1]


def _error_without(fold: _Sums, whole: _Sums, penalty: float) -> Tensor:
    """The error on a fold of the map that was fitted to the other folds."""
    return fold.error(_Sums.together([whole, fold], sign=-1.0).solve(penalty))
