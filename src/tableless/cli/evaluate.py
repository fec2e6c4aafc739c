"""`tableless evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..data.config import DataConfig, RowRules
from .app import app
from .click_options import evaluate_click_model
from .options import AsJson, Run, help_of


@app.command(epilog="Example: tableless evaluate runs/ml")
def evaluate(
    context: typer.Context,
    run: Run,
    data: Annotated[
        str | None,
        typer.Option(help="The interactions: needed if the run was trained on a file, or to measure it on others."),
    ] = None,
    test: Annotated[str | None, typer.Option(help=help_of(DataConfig, "test"))] = None,
    data_dir: Annotated[
        Path | None, typer.Option(envvar="TABLELESS_DATA", help=help_of(DataConfig, "data_dir"))
    ] = None,
    user_col: Annotated[str | None, typer.Option(help=help_of(DataConfig, "user_col"))] = None,
    item_col: Annotated[str | None, typer.Option(help=help_of(DataConfig, "item_col"))] = None,
    time_col: Annotated[str | None, typer.Option(help=help_of(DataConfig, "time_col"))] = None,
    drop_missing: Annotated[bool, typer.Option("--drop-missing", help=help_of(DataConfig, "drop_missing"))] = False,
    rating_col: Annotated[str | None, typer.Option(help=help_of(DataConfig, "rating_col"))] = None,
    min_rating: Annotated[float | None, typer.Option(help=help_of(DataConfig, "min_rating"))] = None,
    date_format: Annotated[str | None, typer.Option(help=help_of(DataConfig, "date_format"))] = None,
    negatives: Annotated[
        Path | None, typer.Option(help="NCF's test.negative file: (user,item), tab, negatives separated by tabs.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a trained run again: on its own test actions, on other data, on a test file, or against negatives."""
    from ..recommender.clicks.click_runs import is_click_run
    from ..recommender.measurement import measure_run
    from ..recommender.run_directory import RunDirectory
    from .output import print_results

    if is_click_run(run):
        evaluate_click_model(context, run, data=data, test=test, data_dir=data_dir, as_json=as_json)
        return
    results = measure_run(
        RunDirectory(run).read(),
        data=data,
        test=test,
        data_dir=data_dir,
        user_col=user_col,
        item_col=item_col,
        time_col=time_col,
        rules=RowRules(drop_missing, rating_col, min_rating, date_format),
        negatives=negatives,
    )
    if as_json:
        print(json.dumps(results))
        return
    print_results(results)
