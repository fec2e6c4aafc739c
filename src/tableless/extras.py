"""Extras: parts of the library that need more packages, and how to install them."""

from __future__ import annotations


def install_hint(*extras: str) -> str:
    """The command that installs extras: for the released package, and for a clone of the repository."""
    names = ",".join(extras)
    return f"pip install 'tableless[{names}]' (in a clone: pip install -e '.[{names}]')"
