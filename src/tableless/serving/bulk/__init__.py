"""Vectors for any number of ids, from files to files."""

from .embed_files import Embedded, Engine, embed_file, embed_files

__all__ = ["Embedded", "Engine", "embed_file", "embed_files"]
