"""`tableless bench`."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from ..recommender.runs import ModelConfig
from ..recommender.training import TrainConfig
from .app import app
from .options import AsJson, Only, help_of, options_from_dataclasses


@app.command(epilog="Example: tableless bench --batch 100 --threads 2")
@options_from_dataclasses
def bench(
    *,
    batch: Annotated[int, typer.Option(help="Ids per call.")] = 100,
    queries: Annotated[int, typer.Option(help="Ids to look up in each way; results are per million.")] = 100_000,
    threads: Annotated[int, typer.Option(help="Threads that torch may use.")] = 1,
    # As in the paper; the default of `train` is smaller.
    budget: Annotated[str, typer.Option(help=help_of(ModelConfig, "budget"))] = "1/4 parameters",
    model: Annotated[ModelConfig, Only("embedding_dim")],
    vocab_size: Annotated[
        int | None, typer.Option(help="Different ids; if not given, the users and films of MovieLens-20M.")
    ] = None,
    training: Annotated[TrainConfig, Only("seed")],
    as_json: AsJson = False,
) -> None:
    """The paper's Table 8 on this machine: the time of a million lookups, with tables and without."""
    from dataclasses import asdict

    from ..serving.timing import MOVIELENS_20M, measure_lookups, render_timings

    report = measure_lookups(
        vocab_size=MOVIELENS_20M if vocab_size is None else vocab_size,
        embedding_dim=model.embedding_dim,
        budget=budget,
        batch_size=batch,
        queries=queries,
        threads=threads,
        seed=training.seed,
    )
    if as_json:
        print(json.dumps(asdict(report)))
        return
    Console().print(render_timings(report))
