"""tableless: embeddings without embedding tables.

    raw ids → ids → encode → decode → embedding

`to_ids` turns what you have (strings, integers of any kind) into ids; a scheme turns ids into vectors. Every scheme of
`SCHEMES` has the same interface; `DeepHashEmbedding` is the one that needs no table and no vocabulary.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from .embedding import (
    ENCODING_VERSION,
    LSH,
    PAPER_NETWORK,
    SCHEMES,
    DeepHashEmbedding,
    Distillation,
    EmbeddingBag,
    EmbeddingScheme,
    HashFamily,
    JointEmbedding,
    Replacement,
    SideFeatures,
    distil,
    embedding_for,
    load_scheme,
    replace_embeddings,
    save_scheme,
    to_ids,
)

if TYPE_CHECKING:
    from .serving.trained_model import TrainedModel

__version__ = "0.1.0"

__all__ = [
    "ENCODING_VERSION",
    "LSH",
    "PAPER_NETWORK",
    "SCHEMES",
    "DeepHashEmbedding",
    "Distillation",
    "EmbeddingBag",
    "EmbeddingScheme",
    "HashFamily",
    "JointEmbedding",
    "Replacement",
    "SideFeatures",
    "distil",
    "embedding_for",
    "load",
    "load_scheme",
    "replace_embeddings",
    "save_scheme",
    "to_ids",
]


def load(
    run: str | os.PathLike[str],
    *,
    precision: Literal["fp32", "int8"] = "fp32",
    hot_ids: int = 10_000,
    index: Literal["exact", "faiss"] = "exact",
    metadata: str | os.PathLike[str] | None = None,
    interactions: str | os.PathLike[str] | None = None,
) -> TrainedModel:
    """A trained model that answers, from a run directory or by the id of one on the Hugging Face hub.

    `embed`, `score`, `recommend` and `neighbors` take raw ids, known and new. `metadata` is a file with the items'
    titles; `interactions` (a file, a directory, a known dataset) says which items users have had, so that those are
    not recommended again. The other options are explained at `tableless.serving.trained_model.TrainedModel`.
    """
    from .serving.trained_model import TrainedModel

    return TrainedModel.from_pretrained(
        run, precision=precision, hot_ids=hot_ids, index=index, metadata=metadata, interactions=interactions
    )
