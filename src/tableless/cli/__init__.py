"""The command line, a file per command: parse, call one library function, print."""

from __future__ import annotations

import sys

from ..hints import install_hint

try:
    from .app import app
except ImportError as missing:  # pragma: no cover - needs an environment without the extra
    raise SystemExit(f"the command line needs {missing.name}: {install_hint('cli')}") from None

# A command registers itself; this order is that of `tableless --help`.
from . import bench, compare, compress, demo, embed, evaluate, export, inspect, recommend, serve, train  # noqa: F401
from .app import as_typed

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; a mistake of the user's ends in one line, not in a traceback."""
    try:
        app()
    except (ValueError, OSError, ImportError) as error:
        print(f"tableless: {as_typed(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
