"""`tableless embed`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .app import app
from .options import AsJson, Run, one_of


@app.command(epilog="Example: tableless embed runs/ml --ids new-items.csv --side item --out vectors.parquet")
def embed(
    run: Run,
    ids: Annotated[
        str,
        typer.Option(help="Parquet, CSV, or plain text with an id a line; parquet also as 'dir/*.parquet', s3://…."),
    ],
    out: Annotated[
        str, typer.Option(help="NAME.parquet, or a directory: a part for every million ids, and it can be restarted.")
    ],
    side: Annotated[str, typer.Option(help="user or item.")] = "item",
    column: Annotated[str | None, typer.Option(help="The column of the ids; `id`, or the first.")] = None,
    engine: Annotated[str, typer.Option(help="local, or ray: on all machines of a cluster.")] = "local",
    address: Annotated[str | None, typer.Option(help="Of the Ray cluster: auto, or HOST:6379.")] = None,
    as_json: AsJson = False,
) -> None:
    """Vectors for any number of ids, in bounded memory."""
    from rich.console import Console
    from rich.progress import Progress

    from ..serving.bulk.embed_files import embed_file, embed_files
    from ..serving.bulk.paths_and_uris import without_secrets

    chosen = one_of("--side", side, "user", "item")
    where = one_of("--engine", engine, "local", "ray")
    shown = without_secrets(out)
    if out.endswith(".parquet") and where == "ray":
        raise ValueError(f"--engine ray writes many files at once, and {shown} is one; give a directory as --out")
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=as_json or not console.is_terminal) as bar:
        task = bar.add_task("vectors", total=None)
        if out.endswith(".parquet"):
            result = embed_file(run, ids, out, side=chosen, column=column)
        else:
            result = embed_files(
                run,
                ids,
                out,
                side=chosen,
                column=column,
                engine=where,
                address=address,
                on_block=lambda done, total: bar.update(task, completed=done, total=total),
            )
    if as_json:
        print(json.dumps({"count": result.vectors, "found": result.found, "out": shown}))
        return
    found = f", {result.found:,} of them from before" if result.found else ""
    print(f"{result.vectors:,} vectors in {shown}{found}")
