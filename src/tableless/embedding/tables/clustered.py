"""Clustered compositional embedding (CCE): ids that are alike share parts of their vectors."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from typing_extensions import Self

from ..budget import Budget, fit_to_budget, resolve_budget
from ..hashing import HashFamily, derive_seed
from ..id_batches import checked_ids
from ..rounding import pack_codes, unpack_codes
from ..scheme import INITIAL_STD, EmbeddingScheme, normal, require_known, seeded
from .column_parts import as_points, find_centres, look_up_parts, metric_roots, nearest_centres, parts_of_columns
from .shared_rows import SharedRows, mean_of_sharers

_ENOUGH, _MOST_TURNS = 0.001, 20  # the last turn is the one that lowers the error by less than this share
_MOST_PARTS = 4  # as its authors have it


class ClusteredCompositionalEmbedding(EmbeddingScheme):
    """The columns are split into `num_parts`; a part is a row of `table` plus a row of `helper`, of `num_rows` each.

    The row of `table` is that of the id's cluster: a pointer is stored for each part of each id, in as few bits as
    `num_rows` needs. The row of `helper` is found by a hash. The pointers come from k-means on the rows of a table
    (`fit_directly`), where its authors cluster the vectors that were learned so far. Before a fit they are hashes.
    """

    open_vocabulary = False
    rounds_rows = True
    pointers: Tensor  # uint8 [vocab_size, bytes]
    parts: Tensor

    def __init__(
        self,
        embedding_dim: int,
        *,
        vocab_size: int,
        num_rows: int,
        num_parts: int = 4,
        initial_std: float = INITIAL_STD,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if num_rows < 2:
            raise ValueError(f"num_rows is {num_rows}; at least 2 are needed")
        self.embedding_dim = embedding_dim
        self.vocab_size = vocab_size
        self.num_rows = num_rows
        self.num_parts = num_parts
        self.initial_std = initial_std
        self.seed = seed
        self.register_buffer("parts", parts_of_columns(embedding_dim, num_parts), persistent=False)
        self.helper_hash = HashFamily(num_parts, num_rows, seed, mixed=True)
        generator, std = seeded(seed), initial_std / math.sqrt(2)
        self.table = normal(num_rows, embedding_dim, std=std, generator=generator)
        self.helper = normal(num_rows, embedding_dim, std=std, generator=generator)
        clusters = HashFamily(num_parts, num_rows, derive_seed(seed, "cluster"), mixed=True)
        self.register_buffer("pointers", pack_codes(clusters(torch.arange(vocab_size)), self._bits))

    @property
    def _bits(self) -> int:
        """Of a pointer."""
        return (self.num_rows - 1).bit_length()

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        require_known(ids, self.vocab_size)
        ids = checked_ids(ids)
        clusters = unpack_codes(self.pointers[ids], self.num_parts, self._bits)
        shared = look_up_parts(self.table, clusters, self.parts)
        return shared + look_up_parts(self.helper, self.helper_hash(ids), self.parts)

    @torch.no_grad()
    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """Clusters by k-means. Then in turn: the best rows for the pointers, and the best pointers for the rows.

        Each part is fitted alone: what the metric says of two parts together is left out. An id without a row gets the
        pointers that are best for the mean row.
        """
        means, totals = mean_of_sharers(ids, rows, weights, self.vocab_size)
        counted = totals.double().unsqueeze(-1)
        mean = (means.double() * counted).sum(0) / counted.sum()
        there, back = metric_roots(metric, self.parts)
        points = torch.where(counted > 0, (means.double() - mean) @ there, 0).to(rows)
        hashes = self.helper_hash(torch.arange(self.vocab_size, device=ids.device))
        table, helper, pointers = self.table.to(rows), self.helper.to(rows), torch.empty_like(hashes)
        for part in range(self.num_parts):
            own = self.parts == part
            start = torch.cat([table[:, own], helper[:, own]])
            both, pointers[:, part] = _fit_part(points[:, own], hashes[:, part], totals, start, seed=self.seed + part)
            table[:, own], helper[:, own] = both.chunk(2)
        self.table.copy_(table.double() @ back + mean)
        self.helper.copy_(helper.double() @ back)
        self.pointers.copy_(pack_codes(pointers, self._bits))
        return self, torch.zeros_like(ids, dtype=torch.bool)

    def part_of(self, name: str) -> str:
        """Pointers are codes, and are counted apart from weights."""
        return "codes" if name == "pointers" else super().part_of(name)

    @classmethod
    def from_budget(
        cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0, num_parts: int | None = None
    ) -> Self:
        """As many rows as the budget pays for, after the pointers. More rows than ids would add nothing.

        A budget of parameters counts as four bytes for each of them, since pointers are no parameters.
        """
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size).in_bytes
        num_parts = min(_MOST_PARTS, embedding_dim) if num_parts is None else num_parts
        return fit_to_budget(
            lambda rows: cls(embedding_dim, vocab_size=vocab_size, num_rows=rows, num_parts=num_parts, seed=seed),
            allowed,
            smallest=2,
            largest=max(2, vocab_size),
        )


def _fit_part(points: Tensor, hashes: Tensor, weights: Tensor, start: Tensor, *, seed: int) -> tuple[Tensor, Tensor]:
    """Points [n, size], the helper row of each [n] -> both tables, one above the other, and the pointers [n]."""
    num_rows = len(start) // 2
    given = weights > 0
    centres = find_centres(as_points(points[given]), num_rows, weights=as_points(weights[given]), seed=seed)
    pointers, last = nearest_centres(as_points(points), centres), math.inf
    both = torch.cat([torch.from_numpy(centres).to(start), torch.zeros_like(start[num_rows:])])
    for _ in range(_MOST_TURNS):
        places = torch.stack([torch.from_numpy(pointers).to(hashes), hashes + num_rows], -1)
        both = SharedRows(places, 2 * num_rows).solve(points, weights=weights, start=both)
        rest = points - both[places[:, 1]]
        error = float((rest - both[places[:, 0]]).square().sum(-1) @ weights)
        if error > (1 - _ENOUGH) * last:
            break
        last, pointers = error, nearest_centres(as_points(rest), as_points(both[:num_rows]))
    return both, places[:, 0]
