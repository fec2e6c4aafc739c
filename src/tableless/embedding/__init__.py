"""Ids → vectors: raw ids → ids → codes → embeddings."""

from .bag import EmbeddingBag
from .deep_hash import DeepHashEmbedding
from .hashing import ENCODING_VERSION, HashFamily
from .ids import to_ids
from .joint import JointEmbedding
from .scheme import EmbeddingScheme
from .schemes import SCHEMES, embedding_for
from .side_features import LSH, SideFeatures
from .storage import load_scheme, save_scheme

__all__ = [
    "ENCODING_VERSION",
    "LSH",
    "SCHEMES",
    "DeepHashEmbedding",
    "EmbeddingBag",
    "EmbeddingScheme",
    "HashFamily",
    "JointEmbedding",
    "SideFeatures",
    "embedding_for",
    "load_scheme",
    "save_scheme",
    "to_ids",
]
