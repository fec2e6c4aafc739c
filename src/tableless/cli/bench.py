"""`tableless bench`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ..recommender.runs import ModelConfig
from ..recommender.training import TrainConfig
from .app import app
from .options import AsJson, Only, help_of, options_from_dataclasses

if TYPE_CHECKING:
    from rich.table import Table

    from ..serving.timing import LookupReport


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

    from ..serving.timing import MOVIELENS_20M, measure_lookups

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


def render_timings(report: LookupReport) -> Table:
    """The report for a terminal."""
    from rich import box
    from rich.table import Table

    from ..serving.timing import HOT_SHARE, ZIPF

    caption = [
        f"{report.vocab_size:,} ids, budget {report.budget}, batch {report.batch_size}; {report.queries:,} lookups of "
        "each kind, in turn: the median and the range. Seconds for a million are microseconds for one.",
        f"hot: the vectors of {HOT_SHARE:.0%} of the ids are kept, and traffic follows Zipf's law ({ZIPF}).",
        *(f"Left out: {name} ({reason})." for name, reason in report.left_out.items()),
        report.machine,
    ]
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption="\n".join(caption), caption_justify="left", show_edge=False
    )
    for name in ("", "parameters", "MB", "bytes\nper id", "s per\nmillion", "range", "×\nfull", "×\nlayers"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for time in report.times:
        spread = time.seconds_per_million
        table.add_row(
            time.name,
            f"{time.num_parameters:,}",
            f"{time.megabytes:.1f}",
            f"{time.megabytes * 1e6 / report.vocab_size:.1f}",
            f"{spread.median:.2f}",
            f"{spread.low:.1f}–{spread.high:.1f}",
            f"{time.of_full.median:.1f}",
            f"{time.of_products.median:.2f}",
        )
    return table
