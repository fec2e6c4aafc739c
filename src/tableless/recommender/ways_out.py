"""What to do where a budget is too small for a scheme: a larger budget, or schemes that keep to this one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..embedding.budget import Allowance, BudgetTooSmall
from ..embedding.scheme import EmbeddingScheme
from ..embedding.schemes import SCHEMES

_SMALL_SCHEMES = ("coded", "low-rank", "quantized", "hashing-trick")  # best first, as far as is known


def ways_out_of(
    scheme: str, total: Allowance, counts: Sequence[int], *, embedding_dim: int, options: Mapping[str, Any]
) -> str:
    """What to tell someone whose budget is too small for users and items, of which there are `counts`.

    Users and items share the budget by their numbers. So the smaller side may need a budget that is many times what the
    scheme takes there.
    """
    sizes: dict[str, Any] = {"embedding_dim": embedding_dim}
    nothing = Allowance(1, total.unit)
    least = [_smallest(SCHEMES[scheme], nothing, vocab_size=count, **sizes, **options) for count in counts]
    needed = max(math.ceil(size * sum(counts) / count) for size, count in zip(least, counts, strict=True))
    enough = f"'{needed}B'" if total.unit == "bytes" else f"{needed}"
    fitting = [name for name in _SMALL_SCHEMES if _fits(SCHEMES[name], total, counts, **sizes)]
    named = "".join(f"scheme={name!r}, " for name in fitting)
    return (
        f"Users and items share the budget by their numbers. Give budget={enough} or more, or take another scheme: "
        f"{named}{'or ' if named else ''}scheme='full', the whole table"
    )


def _smallest(kind: type[EmbeddingScheme], nothing: Allowance, **arguments: Any) -> int:
    """What a scheme takes at least, which it says when it is offered next to nothing."""
    try:
        kind.from_budget(nothing, **arguments)
    except BudgetTooSmall as error:
        return error.smallest
    return nothing.amount


def _fits(kind: type[EmbeddingScheme], total: Allowance, counts: Sequence[int], **sizes: Any) -> bool:
    try:
        with torch.device("meta"):
            for count in counts:
                kind.from_budget(total.share(count, sum(counts)), vocab_size=count, **sizes)
    except ValueError:
        return False
    return True
