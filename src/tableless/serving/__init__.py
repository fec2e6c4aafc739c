"""A trained model → answers."""

from .inference import FastEmbedding

__all__ = ["FastEmbedding"]
