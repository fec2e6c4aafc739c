"""`tableless train`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .app import app
from .options import (
    AsJson,
    BatchSize,
    Cache,
    Core,
    Data,
    DataDir,
    Device,
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
    print_results,
    refuse_what_a_stream_ignores,
)


@app.command(epilog="Example: tableless train movielens-1m --scheme dhe --budget 1/4 --out runs/ml")
def train(
    context: typer.Context,
    data: Data,
    scheme: Annotated[str, typer.Option(help="An embedding scheme; the README lists them.")] = "dhe",
    budget: Annotated[str, typer.Option(help="1/4 of the full table, a number of parameters, or 64MB.")] = "1/4",
    backbone: Annotated[str, typer.Option(help="gmf or mlp.")] = "gmf",
    out: Annotated[Path | None, typer.Option(help="Run directory to write.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last epoch of --out.")] = False,
    epochs: Epochs = 300,
    batch_size: BatchSize = 2048,
    learning_rate: Rate = 1e-3,
    weight_decay: WeightDecay = 0.0,
    negatives_per_positive: Annotated[int, typer.Option(help="Sampled items the user did not choose.")] = 4,
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
    device: Device = "auto",
    stream: Annotated[
        bool, typer.Option("--stream", help="One pass over parquet files without preparing them; open schemes only.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a recommender on interactions, measure it, and keep the best epoch."""
    from ..data.loading import load_split
    from ..recommender import runs
    from ..recommender.distributed import join_processes
    from ..recommender.progress import TrainingProgress
    from ..recommender.training import TrainConfig

    chosen = data_config(data, data_dir, user_col, item_col, time_col, core=core, split=split, test=test)
    training = TrainConfig(
        epochs=epochs,
        batch_size=batch_size,
        num_negatives=negatives_per_positive,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        patience=patience,
        recipe=one_of("--recipe", recipe, "fast", "paper"),
        seed=seed,
    )
    model = runs.ModelConfig(scheme=scheme, budget=budget, backbone=backbone, embedding_dim=embedding_dim)
    if stream:
        refuse_what_a_stream_ignores(context)
        from ..recommender.streaming import run_stream

        with join_processes() as processes, TrainingProgress(quiet=as_json or not processes.is_first) as progress:
            results = run_stream(
                chosen, model, training, out=out, device=device, processes=processes, on_batch=progress.on_stream
            )
        if processes.is_first:
            print(json.dumps(results) if as_json else f"AUC on actions not yet seen: {results['auc']:.4f}")
        return
    with join_processes() as processes, TrainingProgress(quiet=as_json or not processes.is_first) as progress:
        parts = load_split(chosen, cache_dir=cache_dir, report=progress.tell)
        progress.describe(parts)
        _, results = runs.run(
            chosen,
            model,
            training,
            parts,
            out=out,
            resume=resume,
            device=device,
            processes=processes,
            on_note=progress.tell,
            on_batch=progress.on_batch,
            on_epoch=progress.on_epoch,
        )
    if not processes.is_first:
        return
    if as_json:
        print(json.dumps(results | ({"out": str(out)} if out else {})))
        return
    print_results(results)
    if out is not None:
        print(f"The model is in {out}. Try: tableless recommend {out} --user ID")
