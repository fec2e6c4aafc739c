"""The application that every command registers with."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__

app = typer.Typer(
    help="Embeddings without embedding tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},  # those of the commands too
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"tableless {__version__}")
        raise typer.Exit


@app.callback()
def _app(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    """Embeddings without embedding tables."""
