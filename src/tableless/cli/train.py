"""`tableless train`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data.config import DataConfig, FeatureConfig
from ..recommender.runs import ModelConfig
from ..recommender.stream_options import StreamOptions
from ..recommender.training import TrainConfig
from .app import app
from .click_options import ClickOptions, train_click_run
from .options import AsJson, Cache, Device, options_from_dataclasses, was_typed

_USED_BY_A_STREAM = frozenset(
    {
        "data", "scheme", "budget", "backbone", "out", "batch_size", "learning_rate", "weight_decay", "num_negatives",
        "seed", "embedding_dim", "data_dir", "user_col", "item_col", "device", "stream", "as_json",
        "drop_missing", "rating_col", "min_rating", "time_col", "half_life", "follow",
        "checkpoint_seconds", "start_from",
    }
)  # fmt: skip


@app.command(epilog="Example: tableless train movielens-1m --scheme dhe --budget 1/16 --out runs/ml")
@options_from_dataclasses
def train(
    *,
    context: typer.Context,
    model: ModelConfig,
    out: Annotated[Path | None, typer.Option(help="Run directory to write.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last epoch of --out.")] = False,
    training: TrainConfig,
    data: DataConfig,
    known: FeatureConfig,
    cache_dir: Cache = None,
    device: Device = "auto",
    no_example_users: Annotated[
        bool,
        typer.Option("--no-example-users", help="Keep no user ids in --out for the page of a server to show."),
    ] = False,
    stream: Annotated[
        bool,
        typer.Option("--stream", help="One pass over parquet files, JSON lines or CSV (- reads standard input)."),
    ] = False,
    clicks: ClickOptions,
    streaming: StreamOptions,
    as_json: AsJson = False,
) -> None:
    """Train a recommender on interactions, measure it, and keep the best epoch. With --columns, a click model."""
    from ..recommender.runs import choose_device

    choose_device(device)  # an unknown one is refused before the data is read
    if train_click_run(context, data, model, training, clicks, out=out, device=device, as_json=as_json):
        return
    if stream:
        _refuse_what_a_stream_ignores(context, data.data)
        _train_on_a_stream(data, model, training, options=streaming, out=out, device=device, as_json=as_json)
        return
    streaming.require_unused()
    from ..data.loading import load_split
    from ..recommender.distributed import join_processes
    from ..recommender.features import load_features
    from ..recommender.runs import train_and_measure
    from .output import ProgressBar

    with join_processes() as processes, ProgressBar(quiet=as_json or not processes.is_first) as progress:
        parts = load_split(data, cache_dir=cache_dir, report=progress.tell)
        progress.describe(parts)
        _, results = train_and_measure(
            data,
            model,
            training,
            parts,
            features=load_features(known, parts, progress.tell),
            out=out,
            resume=resume,
            device=device,
            with_example_users=not no_example_users,
            processes=processes,
            on_note=progress.tell,
            on_batch=progress.on_batch,
            on_epoch=progress.on_epoch,
            on_fit=progress.on_fit,
        )
    if processes.is_first:
        _tell(results, out, as_json=as_json)


def _tell(results: dict[str, Any], out: Path | None, *, as_json: bool) -> None:
    from .output import print_results

    if as_json:
        print(json.dumps(results | ({"out": str(out)} if out else {})))
        return
    print_results(results)
    if out is not None:
        print(f"The model is in {out}. Try: tableless recommend {out} --user ID")


def _train_on_a_stream(
    data: DataConfig, model: ModelConfig, training: TrainConfig, *, as_json: bool, **settings: Any
) -> None:
    from ..recommender.distributed import join_processes
    from ..recommender.stream_runs import run_stream
    from .output import ProgressBar

    with join_processes() as processes, ProgressBar(quiet=as_json or not processes.is_first) as progress:
        settings |= {"on_note": progress.tell, "on_batch": progress.on_stream}
        results = run_stream(data, model, training, processes=processes, **settings)
    if processes.is_first:
        print(json.dumps(results) if as_json else f"AUC on actions not yet seen: {results['auc']:.4f}")


def _refuse_what_a_stream_ignores(context: typer.Context, source: str) -> None:
    """Refuse options that mean nothing with --stream, where they were typed.

    The list holds what a stream *uses*: a new option is refused until somebody has thought of streams. Times are read
    from lines alone, where events may come late.
    """
    from ..data.reading.line_sources import is_of_events

    used = _USED_BY_A_STREAM - (set() if is_of_events(source) else {"time_col"})
    typed = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in used and was_typed(context, parameter.name)
    ]
    if typed:
        raise ValueError(
            f"--stream reads the data once, as it comes, and has no use for {', '.join(typed)}; "
            "leave out one or the other"
        )
