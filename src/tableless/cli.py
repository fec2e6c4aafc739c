"""The command line: parse, call one library function, print."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich.console import Console
except ImportError as missing:  # pragma: no cover - needs an environment without the extra
    raise SystemExit(f"the command line needs {missing.name}: pip install 'tableless[cli]'") from None

app = typer.Typer(
    help="Embeddings without embedding tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, as the last line, for machines.")]


@app.callback()
def _app() -> None:
    """Embeddings without embedding tables."""


@app.command(epilog="Example: tableless inspect --num-ids 100000 --picture encodings.png")
def inspect(
    num_ids: Annotated[int, typer.Option(help="How many ids to encode.")] = 100_000,
    num_hashes: Annotated[int, typer.Option(help="Hash functions of the dense encoding.")] = 1024,
    seed: Annotated[int, typer.Option(help="Seed of the hash functions.")] = 0,
    picture: Annotated[Path | None, typer.Option(help="Save a picture of the distributions here (PNG).")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure what the paper asks of an encoding: unique, equally similar, high-dimensional, high entropy."""
    from .embedding.diagnostics import measure_encodings
    from .embedding.diagnostics_table import render_table

    reports = measure_encodings(num_ids, num_hashes=num_hashes, seed=seed)
    if picture is not None:
        from .embedding.diagnostics_picture import save_picture

        picture.parent.mkdir(parents=True, exist_ok=True)
        save_picture(picture, num_ids=num_ids, num_hashes=num_hashes, seed=seed)
    if as_json:
        result = {"num_ids": num_ids, "encodings": [report.as_dict() for report in reports]}
        print(json.dumps(result | ({"picture": str(picture)} if picture else {})))
        return
    console = Console()
    console.print(render_table(reports))
    if picture is not None:
        console.print(f"The distributions are drawn in {picture}")


def main() -> None:
    """Run the command line; a mistake of the user's ends in one line, not in a traceback."""
    try:
        app()
    except (ValueError, OSError, ImportError) as error:
        print(f"tableless: {error}", file=sys.stderr)
        raise SystemExit(2) from None
