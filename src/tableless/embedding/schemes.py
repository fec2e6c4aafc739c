"""SCHEMES: every way of turning ids into vectors, by the name it has in flags, configs and results."""

from __future__ import annotations

from .budget import BYTES_PER_PARAMETER, Budget, resolve_budget
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


def embedding_for(
    budget: Budget, *, embedding_dim: int, vocab_size: int, open_vocabulary: bool = True, seed: int = 0
) -> EmbeddingScheme:
    """The embedding that the library recommends for a budget.

    This is deep hash embedding, with one exception: if there will be no new ids (`open_vocabulary=False`) and the full
    table fits into the budget, nothing is better than the table.

    Args:
        budget: The size: a number of parameters, a share of the full table (`"1/4"`), or memory (`"64MB"`).
        embedding_dim: Dimensions of a vector.
        vocab_size: How many ids there are, or will be.
        open_vocabulary: Will there be new ids?
        seed: Everything random follows from it.

    Returns:
        The scheme, untrained.

    Raises:
        ValueError: The budget is not understood, or too small.

    Example:
        ```python
        from tableless import embedding_for, to_ids

        embedding = embedding_for("1/4", embedding_dim=16, vocab_size=10_000)
        vectors = embedding(to_ids(["ann", "ben"]))  # [2, 16]
        ```
    """
    allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
    fits = vocab_size * embedding_dim * BYTES_PER_PARAMETER <= allowed.num_bytes
    scheme = SCHEMES["full" if fits and not open_vocabulary else "dhe"]
    return scheme.from_budget(allowed, embedding_dim=embedding_dim, vocab_size=vocab_size, seed=seed)
