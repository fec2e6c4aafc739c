"""The tables that deep hash embedding replaces. Each is a file, and all have the same interface."""

from __future__ import annotations

from .bloom import BloomEmbedding
from .clustered import ClusteredCompositionalEmbedding
from .coded import CodedEmbedding
from .compositional import CompositionalEmbedding
from .full import FullEmbedding
from .hash_embedding import HashEmbedding
from .hashing_trick import HashingTrick
from .hybrid import HybridHashing
from .low_rank import LowRankEmbedding
from .product_quantized import ProductQuantizedEmbedding
from .quantized import QuantizedEmbedding
from .robe import RobeEmbedding

__all__ = [
    "BloomEmbedding",
    "ClusteredCompositionalEmbedding",
    "CodedEmbedding",
    "CompositionalEmbedding",
    "FullEmbedding",
    "HashEmbedding",
    "HashingTrick",
    "HybridHashing",
    "LowRankEmbedding",
    "ProductQuantizedEmbedding",
    "QuantizedEmbedding",
    "RobeEmbedding",
]
