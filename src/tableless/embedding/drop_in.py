"""The modules that take the place of `nn.Embedding` and `nn.EmbeddingBag` inside a model that cannot tell."""

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
        self.dtype = table.weight.dtype  # schemes compute in float32; the model around may not
        row = None if table.padding_idx is None else table.weight.detach()[table.padding_idx].clone()
        self.register_buffer("padding_row", row)  # never trained, as in torch, and so no business of the scheme
        self.train(table.training)

    @property
    def weight(self) -> Tensor:
        """The table as it would be, [num_embeddings, embedding_dim]: computed when asked for, differentiable.

        To write into it changes nothing; train the scheme.
        """
        # Rather than an error: models that score all items against `embedding.weight` then work as they are. A
        # property cannot be mistaken for a parameter, so optimizers and state dicts see the scheme alone.
        return self._vectors(torch.arange(self.num_embeddings, device=next(self.scheme.parameters()).device))

    def _vectors(self, ids: Tensor) -> Tensor:
        vectors: Tensor = self.scheme(ids).to(self.dtype)
        if self.padding_idx is None or self.padding_row is None:
            return vectors
        return torch.where(ids.eq(self.padding_idx).unsqueeze(-1), self.padding_row, vectors)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{self.num_embeddings}, {self.embedding_dim}, padding_idx={self.padding_idx}"


class DropInEmbedding(_DropIn):
    """`torch.nn.Embedding` over any scheme. Ids beyond the table get a vector too, if the scheme is open to them."""

    def forward(self, input: Tensor) -> Tensor:
        """Int32 or int64 [...] -> [..., embedding_dim]."""
        ids = _as_ids(input)
        # To find the distinct ids costs a sort: less than a network on the repeated ones, more than looking them up.
        # Compiled and exported programs are better off with shapes that do not depend on the data.
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
        # Made anew because it has no weights of its own, and as a submodule would list the scheme's a second time.
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
