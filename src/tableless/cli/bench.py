"""`tableless bench`."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from .app import app
from .options import AsJson, Dim, Seed


@app.command(epilog="Example: tableless bench --batch 100 --threads 2")
def bench(
    batch: Annotated[int, typer.Option(help="Ids per call.")] = 100,
    queries: Annotated[int, typer.Option(help="Ids to look up in each way; results are per million.")] = 100_000,
    threads: Annotated[int, typer.Option(help="Threads that torch may use.")] = 1,
    budget: Annotated[str, typer.Option(help="1/4 of the full table, a number of parameters, or 64MB.")] = "1/4",
    vocab_size: Annotated[
        int | None, typer.Option(help="Different ids; if not given, the users and films of MovieLens-20M.")
    ] = None,
    embedding_dim: Dim = 32,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The paper's Table 8 on this machine: the time of a million lookups, with tables and without."""
    from dataclasses import asdict

    from ..serving.timing import MOVIELENS_20M, measure_lookups, render_lookups

    report = measure_lookups(
        vocab_size=MOVIELENS_20M if vocab_size is None else vocab_size,
        embedding_dim=embedding_dim,
        budget=budget,
        batch_size=batch,
        queries=queries,
        threads=threads,
        seed=seed,
    )
    if as_json:
        print(json.dumps(asdict(report)))
        return
    Console().print(render_lookups(report))
