"""The modules that `replace_embeddings` puts where an `nn.Embedding` or an `nn.EmbeddingBag` was."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .bag import EmbeddingBag, Mode
from .scheme import EmbeddingScheme


class _DropIn(nn.Module):
    """A scheme where a table was, with the attributes that other code reads from a table."""

    padding_row: Tensor | None

    def __init__(self, scheme: EmbeddingScheme, table: nn.Embedding | nn.EmbeddingBag) -> None:
        super().__init__()
        self.scheme = scheme
        self.num_embeddings = table.num_embeddings
        self.embedding_dim = table.embedding_dim
        self.padding_idx = table.padding_idx
        self.dtype = table.weight.dtype  # schemes compute in float32; the model may expect another type
        row = None if table.padding_idx is None else table.weight.detach()[table.padding_idx].clone()
        self.register_buffer("padding_row", row)  # torch never trains the padding row, so it is kept as it was
        self.train(table.training)

    @property
    def weight(self) -> Tensor:
        """The vectors of all ids, [num_embeddings, embedding_dim]. They are computed at each access, with gradients.

        Writing into this tensor does not change the model. To change the vectors, train the scheme.
        """
        # Models that score all items against `embedding.weight` need it. As a property it is no parameter, so
        # optimizers and state dicts see the scheme alone.
        return self._vectors(torch.arange(self.num_embeddings, device=next(self.scheme.parameters()).device))

    def _vectors(self, ids: Tensor) -> Tensor:
        vectors: Tensor = self.scheme(ids).to(self.dtype)
        if self.padding_idx is None or self.padding_row is None:
            return vectors
        return torch.where(ids.eq(self.padding_idx).unsqueeze(-1), self.padding_row, vectors)

    def extra_repr(self) -> str:
        """What `print` shows of it."""
        return f"{self.num_embeddings}, {self.embedding_dim}, padding_idx={self.padding_idx}"


class DropInEmbedding(_DropIn):
    """`torch.nn.Embedding` over any scheme. If the scheme is open to new ids, ids beyond the table get a vector too."""

    def forward(self, input: Tensor) -> Tensor:
        """Int32 or int64 [...] -> [..., embedding_dim]."""
        ids = _as_ids(input)
        # Finding the distinct ids costs a sort. That is cheaper than a network over repeated ids, but dearer than a
        # lookup. Compiled and exported programs need shapes that do not depend on the data.
        if not self.scheme.is_computed or torch.compiler.is_compiling():
            return self._vectors(ids)
        distinct, inverse = torch.unique(ids, return_inverse=True)
        return F.embedding(inverse, self._vectors(distinct))


class DropInEmbeddingBag(_DropIn):
    """`torch.nn.EmbeddingBag` over any scheme."""

    def __init__(self, scheme: EmbeddingScheme, table: nn.EmbeddingBag) -> None:
        super().__init__(scheme, table)
        self.mode = table.mode
        self.include_last_offset = table.include_last_offset

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """Ids [bags, length], or [n] with `offsets` [bags] where each bag starts -> [bags, embedding_dim]."""
        # The bag is made for each call: it has no weights, and as a submodule it would list the scheme's a second time.
        bag = EmbeddingBag(
            self.scheme,
            mode=cast(Mode, self.mode),
            padding_id=self.padding_idx,
            include_last_offset=self.include_last_offset,
        )
        weights = None if per_sample_weights is None else per_sample_weights.float()
        return bag(_as_ids(input), offsets, per_sample_weights=weights).to(self.dtype)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{super().extra_repr()}, mode={self.mode!r}, include_last_offset={self.include_last_offset}"


def _as_ids(input: Tensor) -> Tensor:
    if input.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"ids are of type {input.dtype}; an embedding takes int32 or int64, so convert by .long()")
    return input.long()
