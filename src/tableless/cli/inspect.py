"""`tableless inspect`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .app import app
from .options import AsJson


@app.command(epilog="Example: tableless inspect --num-ids 100000 --picture encodings.png")
def inspect(
    num_ids: Annotated[int, typer.Option(help="How many ids to encode.")] = 100_000,
    num_hashes: Annotated[int, typer.Option(help="Hash functions of the dense encoding.")] = 1024,
    seed: Annotated[int, typer.Option(help="Seed of the hash functions.")] = 0,
    picture: Annotated[Path | None, typer.Option(help="Save a picture of the distributions here (PNG).")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure what the paper asks of an encoding: unique, equally similar, high-dimensional, high entropy."""
    from ..embedding.diagnostics import measure_encodings
    from .encoding_report import render_encodings

    reports = measure_encodings(num_ids, num_hashes=num_hashes, seed=seed)
    if picture is not None:
        from .encoding_report import save_encodings_picture

        picture.parent.mkdir(parents=True, exist_ok=True)
        save_encodings_picture(picture, num_ids=num_ids, num_hashes=num_hashes, seed=seed)
    if as_json:
        result = {"num_ids": num_ids, "encodings": [report.as_dict() for report in reports]}
        print(json.dumps(result | ({"picture": str(picture)} if picture else {})))
        return
    console = Console()
    console.print(render_encodings(reports))
    if picture is not None:
        console.print(f"The distributions are drawn in {picture}")
