"""The command line: parse, call one library function, print."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from .recommender.runs import DataConfig

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


Data = Annotated[str, typer.Argument(help="A file, a directory of parquet files, a known name, or `world`.")]
DataDir = Annotated[
    Path | None, typer.Option(envvar="TABLELESS_DATA", help="Where known datasets are looked for, and downloaded to.")
]
UserColumn = Annotated[str | None, typer.Option(help="Column of the user ids; guessed from common names.")]
ItemColumn = Annotated[str | None, typer.Option(help="Column of the item ids; guessed from common names.")]
TimeColumn = Annotated[str | None, typer.Option(help="Column of the times; guessed from common names.")]
Core = Annotated[int, typer.Option(help="First keep only users and items with at least this many actions.")]
SplitBy = Annotated[str, typer.Option("--split", help="leave-one-out (each user's last) or global-time.")]
Cache = Annotated[Path | None, typer.Option(help="Keep prepared data here, for the next time.")]
Dim = Annotated[int, typer.Option("--embedding-dim", help="Dimensions of an embedding.")]
Epochs = Annotated[int, typer.Option(help="At most this many passes over the data.")]
BatchSize = Annotated[int, typer.Option(help="Actions per step.")]
Rate = Annotated[float, typer.Option("--learning-rate", help="Of Adam.")]
Patience = Annotated[int, typer.Option(help="Epochs without a better validation AUC before it stops.")]
Recipe = Annotated[
    str, typer.Option(help="How computed embeddings are trained: fast (by way of a table) or paper (as published).")
]
Seed = Annotated[int, typer.Option(help="Everything random follows from it.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Run = Annotated[Path, typer.Argument(help="A run directory that `tableless train` has written.")]


@app.command(epilog="Example: tableless train movielens-1m --scheme dhe --budget 1/4 --out runs/ml")
def train(
    data: Data,
    scheme: Annotated[str, typer.Option(help="An embedding scheme; the README lists them.")] = "dhe",
    budget: Annotated[str, typer.Option(help="1/4 of the full table, a number of parameters, or 64MB.")] = "1/4",
    backbone: Annotated[str, typer.Option(help="gmf or mlp.")] = "gmf",
    out: Annotated[Path | None, typer.Option(help="Run directory to write.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last epoch of --out.")] = False,
    epochs: Epochs = 50,
    batch_size: BatchSize = 2048,
    learning_rate: Rate = 1e-3,
    negatives_per_positive: Annotated[int, typer.Option(help="Sampled items the user did not choose.")] = 4,
    patience: Patience = 5,
    recipe: Recipe = "fast",
    seed: Seed = 0,
    embedding_dim: Dim = 32,
    core: Core = 0,
    split: SplitBy = "leave-one-out",
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
    from .recommender import runs
    from .recommender.distributed import join_processes
    from .recommender.progress import TrainingProgress
    from .recommender.training import TrainConfig

    chosen = _data_config(data, data_dir, user_col, item_col, time_col, core=core, split=split)
    training = TrainConfig(
        epochs=epochs,
        batch_size=batch_size,
        num_negatives=negatives_per_positive,
        learning_rate=learning_rate,
        patience=patience,
        recipe=_one_of("--recipe", recipe, "fast", "paper"),
        seed=seed,
    )
    model = runs.ModelConfig(scheme=scheme, budget=budget, backbone=backbone, embedding_dim=embedding_dim)
    if stream:
        from .recommender.stream_runs import run_stream

        with join_processes() as processes, TrainingProgress(quiet=as_json or not processes.is_first) as progress:
            results = run_stream(
                chosen, model, training, out=out, device=device, processes=processes, on_batch=progress.on_stream
            )
        if processes.is_first:
            print(json.dumps(results) if as_json else f"AUC on actions not yet seen: {results['auc']:.4f}")
        return
    with join_processes() as processes, TrainingProgress(quiet=as_json or not processes.is_first) as progress:
        parts = runs.load_split(chosen, cache_dir=cache_dir, report=progress.tell)
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
    _print_results(results)
    if out is not None:
        print(f"The model is in {out}. Try: tableless recommend {out} --user ID")


@app.command(epilog="Example: tableless evaluate runs/ml")
def evaluate(
    run: Run,
    data: Annotated[str | None, typer.Option(help="Other interactions than the run was trained on.")] = None,
    data_dir: DataDir = None,
    negatives: Annotated[
        Path | None, typer.Option(help="NCF's test.negative file: (user,item), tab, negatives separated by tabs.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a trained run again: on its own test actions, on other data, or against given negatives."""
    from .recommender.answers import TrainedRun
    from .recommender.measurement import measure_run

    results = measure_run(TrainedRun(run), data=data, data_dir=data_dir, negatives=negatives)
    if as_json:
        print(json.dumps(results))
        return
    _print_results(results)


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
    epochs: Epochs = 50,
    batch_size: BatchSize = 2048,
    learning_rate: Rate = 1e-3,
    patience: Patience = 5,
    recipe: Recipe = "fast",
    seed: Seed = 0,
    embedding_dim: Dim = 32,
    core: Core = 0,
    split: SplitBy = "leave-one-out",
    data_dir: DataDir = None,
    user_col: UserColumn = None,
    item_col: ItemColumn = None,
    time_col: TimeColumn = None,
    cache_dir: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Which scheme at which budget? Runs that are in --out already are not repeated."""
    from .embedding.schemes import SCHEMES
    from .recommender import comparison, runs
    from .recommender.progress import TrainingProgress
    from .recommender.training import TrainConfig

    chosen = _data_config(data, data_dir, user_col, item_col, time_col, core=core, split=split)
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
        patience=patience,
        recipe=_one_of("--recipe", recipe, "fast", "paper"),
        seed=seed,
    )
    with TrainingProgress(quiet=as_json) as progress:
        parts = runs.load_split(chosen, cache_dir=cache_dir, report=progress.tell)
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


@app.command(epilog="Example: tableless recommend runs/ml --user 42 -n 10 --items movies.csv")
def recommend(
    run: Run,
    user: Annotated[str, typer.Option(help="A user's id as the data has it; new ones are welcome.")],
    count: Annotated[int, typer.Option("-n", "--count", help="How many items.")] = 10,
    items: Annotated[Path | None, typer.Option(help="A file with the items' titles (CSV or parquet).")] = None,
    as_json: AsJson = False,
) -> None:
    """The best items for a user."""
    from .recommender.answers import TrainedRun, with_titles

    trained = TrainedRun(run)
    best = trained.recommend(trained.parse("user", user), count=count)
    if items is not None:
        best = with_titles(best, items)
    if as_json:
        print(json.dumps({"user": user, "items": best.to_dicts()}))
        return
    for place, row in enumerate(best.iter_rows(named=True), start=1):
        print(f"{place:3}  {row['item']!s:<24} {row['score']:8.3f}  {row.get('title') or ''}".rstrip())


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
    from .recommender.answers import TrainedRun, embed_file

    chosen = _one_of("--side", side, "user", "item")
    count = embed_file(TrainedRun(run), ids, out, side=chosen, column=column)
    print(json.dumps({"count": count, "out": str(out)}) if as_json else f"{count:,} vectors in {out}")


@app.command(epilog="Example: tableless bench --batch 100 --threads 2")
def bench(
    batch: Annotated[int, typer.Option(help="Ids per call.")] = 100,
    queries: Annotated[int, typer.Option(help="Ids to look up in each way; results are per million.")] = 100_000,
    threads: Annotated[int, typer.Option(help="Threads that torch may use.")] = 1,
    budget: Annotated[str, typer.Option(help="1/4 of the full table, a number of parameters, or 64MB.")] = "1/4",
    vocab_size: Annotated[int, typer.Option(help="Different ids; users and films of MovieLens-20M.")] = 165_771,
    embedding_dim: Dim = 32,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The paper's Table 8 on this machine: the time of a million lookups, with tables and without."""
    from dataclasses import asdict

    from .serving.timing import measure_lookups, render_table

    report = measure_lookups(
        vocab_size=vocab_size,
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
    Console().print(render_table(report))


@app.command(epilog="Example: tableless demo --out out/demo")
def demo(
    out: Annotated[Path, typer.Option(help="Directory for the models and the picture.")] = Path("out/demo"),
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The main job in two minutes, on the built-in world: three schemes trained, measured and drawn."""
    from .recommender import comparison
    from .recommender.demonstration import run_demo
    from .recommender.progress import TrainingProgress

    with TrainingProgress(quiet=as_json) as progress:
        rows, model = run_demo(out, seed=seed, progress=progress)
    picture = out / "auc-by-size.png"
    comparison.save_picture(rows, picture)
    if as_json:
        print(json.dumps({"rows": rows, "model": str(model), "picture": str(picture)}))
        return
    Console().print(comparison.render_table(rows))
    print(f"The picture is {picture}; the trained model is in {model}.")
    print(f"Next:  tableless recommend {model} --user 7        (any user, also one it has never seen)")
    print("       tableless compare world --schemes all       (every scheme, every size)")
    print("       tableless train YOUR-FILE.csv --out runs/mine")


def _data_config(
    data: str,
    data_dir: Path | None,
    user_col: str | None,
    item_col: str | None,
    time_col: str | None,
    *,
    core: int,
    split: str,
) -> DataConfig:
    from .recommender.runs import DataConfig

    return DataConfig(
        data=data,
        data_dir=str(data_dir) if data_dir else None,
        user_col=user_col,
        item_col=item_col,
        time_col=time_col,
        core=core,
        split=_one_of("--split", split, "leave-one-out", "global-time"),
    )


def _one_of(option: str, value: str, *choices: str) -> Any:
    if value not in choices:
        raise ValueError(f"{option} is {value!r}; it must be {' or '.join(choices)}")
    return value


def _print_results(results: dict[str, Any]) -> None:
    from .recommender.progress import render_results

    Console().print(render_results(results))


def main() -> None:
    """Run the command line; a mistake of the user's ends in one line, not in a traceback."""
    try:
        app()
    except (ValueError, OSError, ImportError) as error:
        print(f"tableless: {error}", file=sys.stderr)
        raise SystemExit(2) from None
