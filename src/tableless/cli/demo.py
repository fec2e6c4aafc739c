"""`tableless demo`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .app import app
from .options import AsJson, Seed


@app.command(epilog="Example: tableless demo --out out/demo")
def demo(
    out: Annotated[Path, typer.Option(help="Directory for the models and the picture.")] = Path("out/demo"),
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The main job in two minutes, on the built-in world: three schemes trained, measured and drawn."""
    from ..recommender import comparison
    from ..recommender.demonstration import run_demo
    from ..recommender.progress import TrainingProgress

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
