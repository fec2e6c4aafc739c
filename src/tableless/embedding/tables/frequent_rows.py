"""A row for each of the most frequent ids: the part that `hybrid` and `head-and-tail` have in common."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..ids import find
from ..rounded_matrix import make_matrix, rows_of, values_of
from ..scheme import normal
from .shared_rows import set_means


class FrequentRows(nn.Module):
    """A row for each of `num_ids` ids. The scheme around it computes the vectors of all other ids in another way.

    Until `assign` is called these are the ids 0 to `num_ids` - 1, since vocabularies are often numbered by frequency.
    The list is a buffer, and so a part of the state dict. Numbers of a row have 32 `bits`, or fewer and a scale.
    """

    ids: Tensor

    def __init__(
        self,
        num_ids: int,
        embedding_dim: int,
        *,
        std: float,
        generator: torch.Generator,
        bits: int = 32,
        packed: bool = False,
    ) -> None:
        super().__init__()
        self.num_ids = num_ids
        self.register_buffer("ids", torch.arange(num_ids))
        shape = num_ids, embedding_dim
        self.table = make_matrix(lambda: normal(*shape, std=std, generator=generator), shape, bits=bits, packed=packed)

    def assign(self, ids: Tensor) -> None:
        """Say before training which ids get a row: `num_ids` distinct ones."""
        distinct = torch.unique(ids)
        if len(distinct) != self.num_ids:
            raise ValueError(f"{len(distinct)} distinct ids were given for {self.num_ids} rows")
        self.ids.copy_(distinct)

    def assign_by(self, frequencies: Tensor, *, vocab_size: int) -> None:
        """Give the rows to the ids 0, 1, … that occur most often, by a count for each of the vocabulary."""
        if frequencies.shape != (vocab_size,):
            raise ValueError(f"frequencies has shape {tuple(frequencies.shape)}; it needs one count per id")
        self.assign(self._most(frequencies))

    def assign_most_frequent(self, ids: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Give the rows to those of the ids [n] that occur most often, by a count for each."""
        self.assign(torch.from_numpy(np.asarray(ids)[self._most(torch.from_numpy(counts)).numpy()]))

    @torch.no_grad()
    def with_more(self, ids: Tensor, rows: Tensor) -> FrequentRows:
        """The same with float32 rows [n, embedding_dim] for more ids [n], and other rows for ids that are there."""
        before = values_of(self.table)
        if rows.shape != (len(ids), before.shape[-1]) or len(torch.unique(ids)) < len(ids):
            raise ValueError(
                f"{len(ids)} ids, of which {len(torch.unique(ids))} are distinct, and rows of shape "
                f"{tuple(rows.shape)}; give distinct ids, and a row of {before.shape[-1]} numbers for each"
            )
        is_kept = ~torch.isin(self.ids, ids)
        ids, rows = torch.cat([self.ids[is_kept], ids]), torch.cat([before[is_kept], rows.to(before)])
        more = FrequentRows(len(ids), rows.shape[-1], std=0.0, generator=torch.Generator()).to(before)
        more.ids, order = ids.sort()
        more.table = nn.Parameter(rows[order])
        return more

    def _most(self, counts: Tensor) -> Tensor:
        """The places of the `num_ids` highest counts."""
        return counts.argsort(descending=True, stable=True)[: self.num_ids]

    def find(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Where in the table each id is, and whether it is there."""
        return find(ids, self.ids)

    @torch.no_grad()
    def take_over(self, ids: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
        """Copy the rows [n, embedding_dim] of listed ids into the table; returns which of the ids [n] are listed."""
        position, is_listed = self.find(ids)
        set_means(values_of(self.table), position[is_listed], rows[is_listed], weights[is_listed])
        return is_listed

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Int64 [...] -> rows [..., embedding_dim], and a mask. Where it is false, the row belongs to another id."""
        position, is_listed = self.find(ids)
        return rows_of(self.table, position), is_listed
