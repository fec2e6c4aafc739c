"""`tableless compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..data.config import DataConfig
from ..recommender.comparison import Plan
from ..recommender.runs import ModelConfig
from ..recommender.training import TrainConfig
from .app import app
from .options import AsJson, Cache, Only, options_from_dataclasses


@app.command(epilog="Example: tableless compare world --schemes full,coded,dhe --budgets 1/16,1/32 --seeds 3")
@options_from_dataclasses
def compare(
    *,
    plan: Plan,
    out: Annotated[Path, typer.Option(help="Directory for the lines (results.jsonl) and the picture.")] = Path(
        "out/compare"
    ),
    training: Annotated[
        TrainConfig,
        Only("epochs", "batch_size", "learning_rate", "weight_decay", "patience", "recipe", "seed"),
    ],
    model: Annotated[ModelConfig, Only("embedding_dim")],
    data: DataConfig,
    cache_dir: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Which scheme at which budget? Runs that are in --out already are not repeated."""
    from ..data.loading import load_split
    from ..recommender.comparison import run_comparison
    from ..recommender.comparison_report import render_comparison, save_comparison_picture, summarise_runs
    from .output import ProgressBar

    picture = out / "auc-by-size.png"
    with ProgressBar(quiet=as_json) as progress:
        parts = load_split(data, cache_dir=cache_dir, report=progress.tell)
        progress.describe(parts)
        lines = run_comparison(
            plan,
            data,
            training,
            parts,
            out=out / "results.jsonl",
            embedding_dim=model.embedding_dim,
            on_run=progress.on_run,
        )
    rows = summarise_runs(lines)
    save_comparison_picture(rows, picture)
    if as_json:
        print(json.dumps({"rows": rows, "picture": str(picture)}))
        return
    Console().print(render_comparison(rows))
    print(f"Every run is in {out / 'results.jsonl'}, the picture in {picture}")
