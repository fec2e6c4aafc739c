"""`tableless compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .app import app
from .options import (
    AsJson,
    BatchSize,
    Cache,
    Core,
    Data,
    DataDir,
    Dim,
    Epochs,
    ItemColumn,
    Patience,
    Rate,
    Recipe,
    Seed,
    SplitBy,
    TestFile,
    TimeColumn,
    UserColumn,
    WeightDecay,
    data_config,
    one_of,
)


@app.command(epilog="Example: tableless compare world --schemes dhe,full,bloom --budgets 1/2,1/4 --seeds 3")
def compare(
    data: Data,
    schemes: Annotated[str, typer.Option(help="Separated by commas, or `all`.")] = "all",
    budgets: Annotated[str, typer.Option(help="Separated by commas.")] = "1/2,1/4,1/8",
    backbones: Annotated[str, typer.Option(help="gmf, mlp, or both, separated by a comma.")] = "gmf",
    seeds: Annotated[int, typer.Option(help="How many seeds, from --seed on.")] = 3,
    out: Annotated[Path, typer.Option(help="Directory for the lines (results.jsonl) and the picture.")] = Path(
        "out/compare"
    ),
    epochs: Epochs = 300,
    batch_size: BatchSize = 2048,
    learning_rate: Rate = 1e-3,
    weight_decay: WeightDecay = 0.0,
    patience: Patience = 10,
    recipe: Recipe = "fast",
    seed: Seed = 0,
    embedding_dim: Dim = 32,
    core: Core = 0,
    split: SplitBy = "leave-one-out",
    test: TestFile = None,
    data_dir: DataDir = None,
    user_col: UserColumn = None,
    item_col: ItemColumn = None,
    time_col: TimeColumn = None,
    cache_dir: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Which scheme at which budget? Runs that are in --out already are not repeated."""
    from ..data.loading import load_split
    from ..embedding.schemes import SCHEMES
    from ..recommender import comparison
    from ..recommender.progress import TrainingProgress
    from ..recommender.training import TrainConfig

    chosen = data_config(data, data_dir, user_col, item_col, time_col, core=core, split=split, test=test)
    plan = comparison.Plan(
        schemes=list(SCHEMES) if schemes == "all" else schemes.split(","),
        budgets=budgets.split(","),
        backbones=backbones.split(","),
        seeds=seeds,
    )
    training = TrainConfig(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        patience=patience,
        recipe=one_of("--recipe", recipe, "fast", "paper"),
        seed=seed,
    )
    with TrainingProgress(quiet=as_json) as progress:
        parts = load_split(chosen, cache_dir=cache_dir, report=progress.tell)
        progress.describe(parts)
        lines = comparison.compare(
            plan,
            chosen,
            training,
            parts,
            out=out / "results.jsonl",
            embedding_dim=embedding_dim,
            on_run=progress.on_run,
        )
    rows = comparison.summarise(lines)
    comparison.save_picture(rows, out / "auc-by-size.png")
    if as_json:
        print(json.dumps({"rows": rows, "picture": str(out / "auc-by-size.png")}))
        return
    Console().print(comparison.render_table(rows))
    print(f"Every run is in {out / 'results.jsonl'}, the picture in {out / 'auc-by-size.png'}")
