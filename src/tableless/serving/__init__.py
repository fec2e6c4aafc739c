"""A trained model → answers."""

from __future__ import annotations

from .fast_embedding import FastEmbedding

__all__ = ["FastEmbedding"]
