"""What several commands are given, said once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from ..data.loading import DataConfig

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, as the last line, for machines.")]
Data = Annotated[str, typer.Argument(help="A file, a directory of parquet files, a known name, or `world`.")]
DataDir = Annotated[
    Path | None, typer.Option(envvar="TABLELESS_DATA", help="Where known datasets are looked for, and downloaded to.")
]
UserColumn = Annotated[str | None, typer.Option(help="Column of the user ids; guessed from common names.")]
ItemColumn = Annotated[str | None, typer.Option(help="Column of the item ids; guessed from common names.")]
TimeColumn = Annotated[str | None, typer.Option(help="Column of the times; guessed from common names.")]
Core = Annotated[int, typer.Option(help="First keep only users and items with at least this many actions.")]
SplitBy = Annotated[
    str,
    typer.Option(
        "--split",
        help="leave-one-out (each user's last), global-time, or column: the column `split` (another: column:NAME) says "
        "train, validation or test.",
    ),
]
TestFile = Annotated[
    str | None, typer.Option("--test", help="A file with the test actions: everything in DATA is then for training.")
]
Cache = Annotated[Path | None, typer.Option(help="Keep prepared data here, for the next time.")]
Dim = Annotated[int, typer.Option("--embedding-dim", help="Dimensions of an embedding.")]
Epochs = Annotated[int, typer.Option(help="At most this many passes over the data; it is meant to end before.")]
BatchSize = Annotated[int, typer.Option(help="Actions per step.")]
Rate = Annotated[float, typer.Option("--learning-rate", help="Of Adam.")]
WeightDecay = Annotated[float, typer.Option(help="Of AdamW; full tables gain from 0.1 to 0.3.")]
Patience = Annotated[
    int,
    typer.Option(help="Epochs without a better validation AUC before it stops (below popularity: five times)."),
]
Recipe = Annotated[
    str, typer.Option(help="fast: learn from a full table that is trained first; paper: from nothing, as published.")
]
Seed = Annotated[int, typer.Option(help="Everything random follows from it.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Run = Annotated[Path, typer.Argument(help="A run directory that `tableless train` has written.")]

_USED_BY_A_STREAM = frozenset(
    {
        "data", "scheme", "budget", "backbone", "out", "batch_size", "learning_rate", "weight_decay",
        "negatives_per_positive", "seed", "embedding_dim", "data_dir", "user_col", "item_col", "device", "stream",
        "as_json",
    }
)  # fmt: skip


def refuse_what_a_stream_ignores(context: typer.Context) -> None:
    """Refuse the options of `train` that mean nothing with --stream, where they were typed.

    The list holds what a stream *uses*: an option that is new is refused until somebody has thought of streams.
    """
    typed = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in _USED_BY_A_STREAM and _was_typed(context, parameter.name)
    ]
    if typed:
        raise ValueError(
            f"--stream reads the data once, as it comes, and has no use for {', '.join(typed)}; "
            "leave out one or the other"
        )


def _was_typed(context: typer.Context, name: str | None) -> bool:
    """Does a value come from the command line, not from a default or the environment?"""
    source = context.get_parameter_source(name) if name else None
    return source is not None and source.name == "COMMANDLINE"


def data_config(
    data: str,
    data_dir: Path | None,
    user_col: str | None,
    item_col: str | None,
    time_col: str | None,
    *,
    core: int,
    split: str,
    test: str | None,
) -> DataConfig:
    """Which interactions, as the options say."""
    from ..data.loading import DataConfig

    return DataConfig(
        data=data,
        data_dir=str(data_dir) if data_dir else None,
        user_col=user_col,
        item_col=item_col,
        time_col=time_col,
        core=core,
        split=split,
        test=test,
    )


def one_of(option: str, value: str, *choices: str) -> Any:
    """The value, if it is one of the choices."""
    if value not in choices:
        raise ValueError(f"{option} is {value!r}; it must be {' or '.join(choices)}")
    return value


def print_results(results: dict[str, Any]) -> None:
    """The measured results, as a table, and what they rest on."""
    from ..recommender.progress import remarks, render_results

    Console().print(render_results(results))
    for remark in remarks(results):
        print(remark)
