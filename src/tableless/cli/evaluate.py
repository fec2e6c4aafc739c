"""`tableless evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .app import app
from .options import AsJson, DataDir, ItemColumn, Run, TestFile, TimeColumn, UserColumn, print_results


@app.command(epilog="Example: tableless evaluate runs/ml")
def evaluate(
    run: Run,
    data: Annotated[
        str | None,
        typer.Option(help="The interactions: needed if the run was trained on a file, or to measure it on others."),
    ] = None,
    test: TestFile = None,
    data_dir: DataDir = None,
    user_col: UserColumn = None,
    item_col: ItemColumn = None,
    time_col: TimeColumn = None,
    negatives: Annotated[
        Path | None, typer.Option(help="NCF's test.negative file: (user,item), tab, negatives separated by tabs.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a trained run again: on its own test actions, on other data, on a test file, or against negatives."""
    from ..recommender.measurement import measure_run
    from ..recommender.run_directory import RunDirectory

    results = measure_run(
        RunDirectory(run).read(),
        data=data,
        test=test,
        data_dir=data_dir,
        user_col=user_col,
        item_col=item_col,
        time_col=time_col,
        negatives=negatives,
    )
    if as_json:
        print(json.dumps(results))
        return
    print_results(results)
