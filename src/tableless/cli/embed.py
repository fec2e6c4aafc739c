"""`tableless embed`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .app import app
from .options import AsJson, Run, one_of


@app.command(epilog="Example: tableless embed runs/ml --ids new-items.csv --side item --out vectors.parquet")
def embed(
    run: Run,
    ids: Annotated[Path, typer.Option(help="Parquet, CSV, or plain text with an id a line.")],
    out: Annotated[Path, typer.Option(help="Parquet file to write: id, vector.")],
    side: Annotated[str, typer.Option(help="user or item.")] = "item",
    column: Annotated[str | None, typer.Option(help="The column of the ids; `id`, or the first.")] = None,
    as_json: AsJson = False,
) -> None:
    """Vectors for any number of ids, in bounded memory."""
    from ..recommender.answers import TrainedRun, embed_file

    chosen = one_of("--side", side, "user", "item")
    count = embed_file(TrainedRun(run), ids, out, side=chosen, column=column)
    print(json.dumps({"count": count, "out": str(out)}) if as_json else f"{count:,} vectors in {out}")
