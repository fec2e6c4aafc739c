"""The modules that `replace_embeddings` puts where a table was: an `nn.Embedding`, an `nn.EmbeddingBag`, or the weight
of an output layer. (`bare_tables.py` has the one for a bare parameter.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from typing_extensions import Self

from .bag import EmbeddingBag, Mode
from .computed_rows import REFUSAL, ComputedRows
from .scheme import EmbeddingScheme, like_vectors
from .weight_changes import Watch


class TableLike(Protocol):
    """What a drop-in must know of a table."""

    weight: Tensor
    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    training: bool


class DropIn(nn.Module):
    """A scheme where a table was, with the attributes that other code reads from a table."""

    padding_row: Tensor | None
    _of_the_table: Tensor
    _kept: tuple[Tensor, Watch, int] | None = None  # the weight, what it was computed from, and its version

    def __init__(self, scheme: EmbeddingScheme, table: TableLike) -> None:
        super().__init__()
        self.scheme = scheme
        self.num_embeddings = table.num_embeddings
        self.embedding_dim = table.embedding_dim
        self.padding_idx = table.padding_idx
        # An empty tensor of the table's type. As a buffer it follows `model.half()` and `model.to(...)`.
        self.register_buffer("_of_the_table", table.weight.detach().new_empty(0), persistent=False)
        row = None if table.padding_idx is None else table.weight.detach()[table.padding_idx].clone()
        self.register_buffer("padding_row", row)  # torch never trains the padding row, so it is kept as it was
        self.train(table.training)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the vectors. Schemes compute in float32; the model may expect another type."""
        return self._of_the_table.dtype

    @property
    def weight(self) -> Tensor:
        """The vectors of all ids, [num_embeddings, embedding_dim], to read and not to write.

        In training they are computed at each access. In eval mode they are kept until a weight of the scheme or the
        mode changes; then they take as much memory as the table did. Changes through `.data` go unnoticed until the
        mode changes, because torch does not count them.
        """
        # Models that score all items against `embedding.weight` need it. As a property it is no parameter, so
        # optimizers and state dicts see the scheme alone.
        rows = self._rows()
        return rows if _is_recorded() else rows.as_subclass(ComputedRows)

    def __setattr__(self, name: str, value: Any) -> None:
        """Like any module's, but the weight cannot be set."""
        if name == "weight":
            raise AttributeError(REFUSAL)
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles are made without the rows that are kept: those can be computed again."""
        return {**self.__dict__, "_kept": None}

    def reset_parameters(self) -> NoReturn:
        """Refused: a table would begin anew, but the scheme was fitted to rows that are gone."""
        raise RuntimeError(
            "reset_parameters would lose what the scheme has learned from its table, which is gone. Build the model "
            "anew, or reset the parts of the model that were not replaced"
        )

    def train(self, mode: bool = True) -> Self:
        """Training or eval mode. Rows that are kept are given up if the mode changes."""
        if mode != self.training:
            self._kept = None
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._kept = None  # torch moves weights to another device or type by way of `.data`
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def _may_keep(self) -> bool:
        tensors = [*self.parameters(), *self.buffers()]
        return (
            not any(module.training for module in self.modules())
            # Tensors of other classes (of FSDP, of fake modes) need not count how often they are written to.
            and all(type(own) in (Tensor, nn.Parameter) and not own.is_inference() for own in tensors)
            and not torch._C._are_functorch_transforms_active()
        )

    def _rows(self) -> Tensor:
        """The vectors of all ids, computed or kept, as a plain tensor."""
        if _is_recorded() or not self._may_keep():
            return self._all_vectors()
        rows = self._kept_rows()
        trained = [own for own in self.scheme.parameters() if own.requires_grad]
        if torch.is_grad_enabled() and trained:
            rows = _WithGradients.apply(rows, self, *trained)  # type: ignore[no-untyped-call]
        return rows

    def _kept_rows(self) -> Tensor:
        if self._kept is not None:
            rows, watch, version = self._kept
            if not watch.has_changed() and rows._version == version:
                return rows
        watch = Watch(self)  # before computing, so that what changes meanwhile is noticed
        # Rows made in inference mode could not be used for training outside of it.
        with torch.inference_mode(False), torch.no_grad():
            rows = self._all_vectors()
        self._kept = rows, watch, rows._version
        return rows

    def _all_vectors(self) -> Tensor:
        return self._vectors(torch.arange(self.num_embeddings, device=like_vectors(self.scheme).device))

    def _vectors(self, ids: Tensor) -> Tensor:
        vectors: Tensor = self.scheme(ids).to(self.dtype)
        if self.padding_idx is None or self.padding_row is None:
            return vectors
        return torch.where(ids.eq(self.padding_idx).unsqueeze(-1), self.padding_row, vectors)

    def look_up(self, ids: Tensor) -> Tensor:
        """Int32 or int64 [...] -> [..., embedding_dim]."""
        ids = _as_ids(ids)
        # Finding the distinct ids costs a sort. That is cheaper than a network over repeated ids, but dearer than a
        # lookup. Compiled and exported programs need shapes that do not depend on the data.
        if not self.scheme.is_computed or torch.compiler.is_compiling():
            return self._vectors(ids)
        distinct, inverse = torch.unique(ids, return_inverse=True)
        return F.embedding(inverse, self._vectors(distinct))

    def extra_repr(self) -> str:
        """What `print` shows of it."""
        return f"{self.num_embeddings}, {self.embedding_dim}, padding_idx={self.padding_idx}"


class DropInEmbedding(DropIn):
    """`torch.nn.Embedding` over any scheme. If the scheme is open to new ids, ids beyond the table get a vector too."""

    def forward(self, input: Tensor) -> Tensor:
        """Int32 or int64 [...] -> [..., embedding_dim]."""
        return self.look_up(input)


class DropInEmbeddingBag(DropIn):
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
        weights = None
        if per_sample_weights is not None:
            weights = per_sample_weights.to(like_vectors(self.scheme).dtype)
        return bag(_as_ids(input), offsets, per_sample_weights=weights).to(self.dtype)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{super().extra_repr()}, mode={self.mode!r}, include_last_offset={self.include_last_offset}"


class DropInLinear(DropIn):
    """An output layer whose weight was a table. It computes the vectors of all ids once for each call.

    In eval mode they are kept, as `weight` is.
    """

    def __init__(self, scheme: EmbeddingScheme, layer: nn.Linear) -> None:
        super().__init__(scheme, BareTable(layer.weight, layer.training))
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.bias = layer.bias  # the same parameter: the model may have it under another name too

    def forward(self, input: Tensor) -> Tensor:
        """Float [..., in_features] -> [..., out_features], a number for each id."""
        return F.linear(input, self._rows(), self.bias)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class BareTable:
    """A weight that is used as a table, without a module that looks rows up."""

    padding_idx: int | None = None

    def __init__(self, weight: Tensor, training: bool) -> None:
        self.weight, self.training = weight, training
        self.num_embeddings, self.embedding_dim = weight.shape


class _WithGradients(torch.autograd.Function):
    """Rows that are kept, as a function of the weights. If a gradient is asked for, the rows are computed again."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, drop_in: DropIn, *weights: Tensor) -> Tensor:
        ctx.drop_in, ctx.weights = drop_in, weights
        ctx.save_for_backward(*weights)
        return rows.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors  # here torch refuses if a weight was written to meanwhile
        if not ctx.drop_in._may_keep():
            raise RuntimeError(
                "the model was in eval mode when its weight was read, and is not any more; call backward() before "
                "train(), or read the weight in training mode"
            )
        with torch.enable_grad():
            rows = ctx.drop_in._all_vectors()
        return None, None, *torch.autograd.grad(rows, ctx.weights, gradient, allow_unused=True)


def _is_recorded() -> bool:
    """Is a program being recorded? It must compute the vectors and not hold them."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None


def _as_ids(input: Tensor) -> Tensor:
    if input.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"ids are of type {input.dtype}; an embedding takes int32 or int64, so convert by .long()")
    return input.long()
