"""The application that every command registers with."""

from __future__ import annotations

import typer

app = typer.Typer(
    help="Embeddings without embedding tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _app() -> None:
    """Embeddings without embedding tables."""
