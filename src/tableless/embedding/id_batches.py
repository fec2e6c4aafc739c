"""A batch of ids as it comes: integers are asked for, and a network computes each distinct id once."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels import uses_kernels


def checked_ids(ids: Tensor) -> Tensor:
    """The ids as int64. Other types than int32 and int64 are refused: a fraction would be cut off without a word."""
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"ids are of type {ids.dtype}; an embedding takes int32 or int64, so convert them by .long()")
    return ids.long()


def with_distinct_ids(compute: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
    """`compute(ids)` [..., size], but repeated ids are computed once. Gradients of repeated ids are added up."""
    distinct, numbers = distinct_ids(ids)
    return compute(distinct) if numbers is None else F.embedding(numbers, compute(distinct))


def distinct_ids(ids: Tensor) -> tuple[Tensor, Tensor | None]:
    """The distinct ids [n], and which of them stands at each place: int64 [...]. Ids without repeats stay as they are.

    Where nothing repeats, the second part is None: so results are those of `ids` themselves, to the last digit.
    """
    # Compiled and traced programs need shapes that do not depend on the data. Tensors on the meta device have no data,
    # and subclasses (such as fake tensors) need not have it here.
    is_traced = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if is_traced or torch.compiler.is_compiling() or ids.is_meta or type(ids) is not Tensor or ids.numel() < 2:
        return ids, None
    if not uses_kernels(ids):
        distinct, numbers = torch.unique(ids, return_inverse=True)
        return (ids, None) if len(distinct) == ids.numel() else (distinct, numbers)
    from ..kernels import id_loops

    # A hash table, since most batches of the library's own training have no repeats and need not pay for a sort.
    flat = ids.reshape(-1).contiguous()
    firsts, numbers = torch.empty_like(flat), torch.empty_like(flat)
    count = id_loops.distinct(flat.numpy(), firsts.numpy(), numbers.numpy())
    return (ids, None) if count == len(flat) else (flat[firsts[:count]], numbers.view(ids.shape))
