"""`tableless evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .app import app
from .options import AsJson, DataDir, Run, print_results


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
    from ..recommender.answers import TrainedRun
    from ..recommender.measurement import measure_run

    results = measure_run(TrainedRun(run), data=data, data_dir=data_dir, negatives=negatives)
    if as_json:
        print(json.dumps(results))
        return
    print_results(results)
