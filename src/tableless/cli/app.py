"""The application that every command registers with, and the names of its options in messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import typer
from typer.main import get_command

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


_OUTSIDE_WORDS = r"(?<![\w'\"`/.\\-])"  # a name inside quotes or in a path is a value, and stays
_VALUE = r"'[^']*'|\"[^\"]*\"|[\w./%-]*[\w/%]"


def as_typed(message: str) -> str:
    """The message with options in the place of arguments: `time_col` → `--time-col`, `epochs=50` → `--epochs 50`."""
    options = _options()
    any_name = "|".join(sorted(map(re.escape, options), key=len, reverse=True))
    with_underscore = "|".join(sorted((name for name in options if "_" in name), key=len, reverse=True))
    message = re.sub(
        rf"{_OUTSIDE_WORDS}({any_name})=({_VALUE})",
        lambda found: f"{options[found[1]]} {_plain(found[2])}",
        message,
    )
    message = re.sub(rf"{_OUTSIDE_WORDS}({with_underscore})(?![\w'\"`/.]\w?)", lambda found: options[found[1]], message)
    message = re.sub(r"(--[\w-]+), \1\b", r"\1", message)  # where the message named both
    # A word without an underscore may be plain English. It is an option where a sentence begins with "NAME is".
    return re.sub(rf"^({any_name})(?= is )", lambda found: options[found[1]], message)


def _options() -> Mapping[str, str]:
    """The options of all commands by the names of their arguments. The same name is the same option everywhere."""
    group = get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return {
        str(parameter.name): max(parameter.opts, key=len)
        for command in group.commands.values()
        for parameter in command.params
        if parameter.param_type_name == "option"
    }


def _plain(value: str) -> str:
    """A value as it is typed: quotes are only needed around nothing."""
    return value[1:-1] if value[0] in "'\"" and len(value) > 2 else value
