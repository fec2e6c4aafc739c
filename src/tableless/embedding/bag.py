"""Several ids, one vector: the last titles watched, the tags of an item, the words of a query."""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .id_batches import checked_ids
from .scheme import EmbeddingScheme, like_vectors

Mode = Literal["sum", "mean", "max"]


class EmbeddingBag(nn.Module):
    """`torch.nn.EmbeddingBag` over any scheme: the vectors of several ids become one.

    Each distinct id of a batch is computed once. An empty bag gives zeros.

    Args:
        scheme: The scheme that makes the vectors.
        mode: How they are combined: `"sum"`, `"mean"` or `"max"`.
        padding_id: Ids equal to this one are left out.
        include_last_offset: The offsets have one more number than there are bags: where the last bag ends.

    Raises:
        ValueError: There is no such mode.

    Example:
        ```python
        import torch
        from tableless import DeepHashEmbedding, EmbeddingBag

        bag = EmbeddingBag(DeepHashEmbedding(32, width=64), mode="mean", padding_id=0)
        vectors = bag(torch.tensor([[3, 7, 0], [5, 0, 0]]))  # two bags: [2, 32]
        ```
    """

    def __init__(
        self,
        scheme: EmbeddingScheme,
        *,
        mode: Mode = "mean",
        padding_id: int | None = None,
        include_last_offset: bool = False,
    ) -> None:
        super().__init__()
        if mode not in get_args(Mode):
            raise ValueError(f"mode is {mode!r}; it must be one of {', '.join(get_args(Mode))}")
        self.scheme = scheme
        self.mode = mode
        self.padding_id = padding_id
        self.include_last_offset = include_last_offset

    def forward(
        self, ids: Tensor, offsets: Tensor | None = None, *, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Ids [bags, length], or [n] with `offsets` [bags] where each bag starts -> [bags, embedding_dim]."""
        if per_sample_weights is not None and self.mode != "sum":
            raise ValueError(f"per_sample_weights goes with mode='sum', not {self.mode!r}")
        if per_sample_weights is not None and per_sample_weights.shape != ids.shape:
            raise ValueError(
                f"per_sample_weights has shape {tuple(per_sample_weights.shape)}; that of ids is {tuple(ids.shape)}"
            )
        if ids.ndim == 2 and offsets is None:
            bags, length = ids.shape
            offsets = torch.arange(bags, device=ids.device) * length
        elif ids.ndim != 1 or offsets is None:
            raise ValueError(f"ids has {ids.ndim} dimensions; give [bags, length], or [n] together with offsets")
        has_end = self.include_last_offset and ids.ndim == 1
        flat = checked_ids(ids).reshape(-1)
        weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
        if self.padding_id is not None:
            flat, offsets, weights = _without(self.padding_id, flat, offsets, weights)
        if not flat.numel():
            dtype = like_vectors(self.scheme).dtype
            return torch.zeros(offsets.shape[0] - has_end, self.scheme.embedding_dim, dtype=dtype, device=ids.device)
        distinct, inverse = torch.unique(flat, return_inverse=True)
        vectors = self.scheme(distinct)
        return F.embedding_bag(
            inverse,
            vectors,
            offsets,
            mode=self.mode,
            per_sample_weights=None if weights is None else weights.to(vectors.dtype),
            include_last_offset=has_end,
        )


def _without(
    padding_id: int, flat: Tensor, offsets: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Remove the padding before the scheme is called: a closed scheme may have no row for it."""
    kept = flat.ne(padding_id)
    before = F.pad(kept.cumsum(0), (1, 0))  # how many ids are kept before each position
    return flat[kept], before[offsets], None if weights is None else weights[kept]
