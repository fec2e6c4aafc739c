"""SCHEMES: every way of turning ids into vectors, by the name it has in flags, configs and results.

Beside them: which scheme suits a budget, and what to do where a budget is too small for one.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .budget import BYTES_PER_PARAMETER, Allowance, Budget, BudgetTooSmall, resolve_budget
from .deep_hash import DeepHashEmbedding
from .head_and_tail import HeadAndTail
from .scheme import EmbeddingScheme
from .tables import (
    BloomEmbedding,
    ClusteredCompositionalEmbedding,
    CodedEmbedding,
    CompositionalEmbedding,
    FullEmbedding,
    HashEmbedding,
    HashingTrick,
    HybridHashing,
    LowRankEmbedding,
    ProductQuantizedEmbedding,
    QuantizedEmbedding,
    RobeEmbedding,
)

SCHEMES: dict[str, type[EmbeddingScheme]] = {
    "dhe": DeepHashEmbedding,
    "full": FullEmbedding,
    "hashing-trick": HashingTrick,
    "bloom": BloomEmbedding,
    "hash-embedding": HashEmbedding,
    "hybrid": HybridHashing,
    "compositional": CompositionalEmbedding,
    "low-rank": LowRankEmbedding,
    "head-and-tail": HeadAndTail,
    "coded": CodedEmbedding,
    "quantized": QuantizedEmbedding,
    "product-quantized": ProductQuantizedEmbedding,
    "cce": ClusteredCompositionalEmbedding,
    "robe": RobeEmbedding,
}


AUTO = "auto"
"""The name of a scheme that is yet to be chosen, by `choose_scheme`."""

_QUICK_ENOUGH = 10.0  # µs: less than a network takes for an id (benchmarks/RESULTS.md)
_CHECK_BITS = 8  # of 256 ids that were not put in, one passes for a known one
_SMALL_SCHEMES = ("coded", "low-rank", "quantized", "hashing-trick")  # best first, as far as is known


@dataclass(frozen=True)
class SchemeChoice:
    """A scheme for a budget, further arguments for its `from_budget`, and why it was chosen."""

    name: str
    options: dict[str, Any]
    reason: str


def choose_scheme(
    budget: Budget,
    *,
    embedding_dim: int,
    vocab_size: int,
    open_vocabulary: bool = True,
    microseconds: float | None = None,
) -> SchemeChoice:
    """Choose a scheme by what was measured (docs/choosing.md).

    Args:
        budget: The size. Memory (`"64MB"`, `"8B/id"`), a share of the bytes of the full table in float32 (`"1/16"`,
            `"25%"`), or a number of parameters (`20_000`, `"20000 parameters"`, `"1/4 parameters"`).
        embedding_dim: Dimensions of a vector.
        vocab_size: How many ids there are, or will be.
        open_vocabulary: Will there be new ids?
        microseconds: The longest that one id may take, if that matters.

    Returns:
        The name of the scheme, options for its `from_budget`, and the reason in one sentence.

    Raises:
        ValueError: The budget is not understood.

    Example:
        ```python
        from tableless import choose_scheme

        choice = choose_scheme("8B/id", embedding_dim=32, vocab_size=1_000_000, open_vocabulary=False)
        print(choice.name, "-", choice.reason)  # coded
        ```
    """
    allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size).num_bytes
    per_id = f"{allowed / vocab_size:.3g} bytes per id"
    with torch.device("meta"):
        int8_rows = SCHEMES["quantized"](embedding_dim, vocab_size=vocab_size, bits=8).num_bytes
    if open_vocabulary and (microseconds is None or microseconds >= _QUICK_ENOUGH):
        return SchemeChoice(
            "dhe", {}, "dhe: there will be new ids, and a network answers for any id without a list of them"
        )
    if open_vocabulary:
        reason = "coded: a network takes too long for an id, and check bits give new ids the mean vector"
        return SchemeChoice("coded", {"check_bits": _CHECK_BITS}, reason)
    if allowed >= vocab_size * embedding_dim * BYTES_PER_PARAMETER:
        return SchemeChoice("full", {}, f"full: the whole table fits into {per_id}, and nothing is better")
    if allowed >= int8_rows:
        return SchemeChoice("quantized", {}, f"quantized: {per_id} are enough for rows in 8 bits, which lose nothing")
    return SchemeChoice("coded", {}, f"coded: of {per_id}, codes of a trained table make the most for known ids")


def kind_for_rows(scheme: str, rows: Tensor, budget: Budget) -> type[EmbeddingScheme]:
    """The scheme of this name. With `AUTO`, the one that keeps most of a table whose ids are all known."""
    if scheme == AUTO:
        sizes = {"embedding_dim": rows.shape[1], "vocab_size": len(rows)}
        scheme = choose_scheme(budget, open_vocabulary=False, **sizes).name
    return SCHEMES[scheme]


def embedding_for(
    budget: Budget,
    *,
    embedding_dim: int,
    vocab_size: int,
    open_vocabulary: bool = True,
    microseconds: float | None = None,
    seed: int = 0,
) -> EmbeddingScheme:
    """The embedding that `choose_scheme` chooses for a budget. The log says which, and why.

    A scheme that codes the rows of a table (`needs_table`, as `coded` does) is to be fitted by `tableless.distil`.

    Args:
        budget: How large it may be: memory (`"64MB"`, `"8B/id"`), or a share of the bytes of the full table (`"1/16"`).
        embedding_dim: Dimensions of a vector.
        vocab_size: How many ids there are, or will be.
        open_vocabulary: Will there be new ids?
        microseconds: The longest that one id may take, if that matters.
        seed: Everything random follows from it.

    Returns:
        The scheme, untrained.

    Raises:
        ValueError: The budget is not understood, or too small.

    Example:
        ```python
        from tableless import embedding_for, to_ids

        embedding = embedding_for("1/16", embedding_dim=16, vocab_size=10_000)
        vectors = embedding(to_ids(["ann", "ben"]))  # [2, 16]
        ```
    """
    sizes: dict[str, Any] = {"embedding_dim": embedding_dim, "vocab_size": vocab_size}
    choice = choose_scheme(budget, open_vocabulary=open_vocabulary, microseconds=microseconds, **sizes)
    logging.getLogger(__name__).info("%s", choice.reason)
    return SCHEMES[choice.name].from_budget(budget, seed=seed, **sizes, **choice.options)


def budget_advice(
    scheme: str, total: Allowance, counts: Sequence[int], *, embedding_dim: int, options: Mapping[str, Any]
) -> str:
    """What to tell someone whose budget is too small for users and items, of which there are `counts`.

    Users and items share the budget by their numbers. So the smaller side may need a budget that is many times what the
    scheme takes there.
    """
    sizes: dict[str, Any] = {"embedding_dim": embedding_dim}
    nothing = Allowance(1, total.unit)
    least = [_smallest_size(SCHEMES[scheme], nothing, vocab_size=count, **sizes, **options) for count in counts]
    needed = max(math.ceil(size * sum(counts) / count) for size, count in zip(least, counts, strict=True))
    enough = f"'{needed}B'" if total.unit == "bytes" else f"{needed}"
    fitting = [name for name in _SMALL_SCHEMES if _fits(SCHEMES[name], total, counts, **sizes)]
    named = "".join(f"scheme={name!r}, " for name in fitting)
    return (
        f"Users and items share the budget by their numbers. Give budget={enough} or more, or take another scheme: "
        f"{named}{'or ' if named else ''}scheme='full', the whole table"
    )


def _smallest_size(kind: type[EmbeddingScheme], nothing: Allowance, **arguments: Any) -> int:
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
