"""tableless: embeddings without embedding tables.

    raw ids → ids → encode → decode → embedding

`to_ids` turns what you have (strings, integers of any kind) into ids; a scheme turns ids into vectors. Every scheme of
`SCHEMES` has the same interface; `DeepHashEmbedding` is the one that needs no table and no vocabulary.
"""

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
    "load_scheme",
    "replace_embeddings",
    "save_scheme",
    "to_ids",
]
