"""`tableless demo`: four schemes on the built-in world, compared by bytes, in about a minute."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ..recommender.training import TrainConfig
from .app import app
from .options import AsJson, Only, options_from_dataclasses

if TYPE_CHECKING:
    from .output import ProgressBar

DEMO_SCHEMES = ("full", "coded", "hashing-trick", "dhe")
"""The table comes first, since the others learn from it. The network comes last: it answers for users never seen."""

DEMO_BUDGET = "1/16"
DEMO_DATA = "world:seed={seed}"


def run_demo(out: Path, *, seed: int, progress: ProgressBar) -> tuple[list[dict[str, Any]], Path]:
    """Train each scheme on the world; returns the summary and the directory of the last model."""
    from ..data.config import DataConfig
    from ..data.loading import load_split
    from ..recommender.comparison_report import summarise_runs
    from ..recommender.runs import ModelConfig, train_and_measure
    from ..recommender.teachers import Teacher

    data = DataConfig(data=DEMO_DATA.format(seed=seed))
    split = load_split(data)
    progress.describe(split)
    training = TrainConfig(seed=seed)
    lines: list[dict[str, Any]] = []
    teacher = None
    for number, scheme in enumerate(DEMO_SCHEMES):
        model = ModelConfig(scheme=scheme, budget="1/1" if scheme == "full" else DEMO_BUDGET)
        line: dict[str, Any] = {"data": data.settings(), "model": asdict(model), "train": asdict(training)}
        progress.on_run(number, len(DEMO_SCHEMES), line)
        directory = out / scheme
        shutil.rmtree(directory, ignore_errors=True)  # that of an earlier demonstration
        watched: dict[str, Any] = {"on_note": progress.tell, "on_batch": progress.on_batch, "on_fit": progress.on_fit}
        trained, results = train_and_measure(data, model, training, split, teacher=teacher, out=directory, **watched)
        teacher = teacher or Teacher(trained, results["stages"])  # the full table, which comes first
        progress.tell(f"{scheme}: {results['bytes_per_id']:.1f} bytes per id, test AUC {results['auc']:.4f}")
        lines.append(line | {"results": results})
    return summarise_runs(lines), directory


@app.command(epilog="Example: tableless demo --out out/demo")
@options_from_dataclasses
def demo(
    *,
    out: Annotated[Path, typer.Option(help="Directory for the models and the picture.")] = Path("out/demo"),
    training: Annotated[TrainConfig, Only("seed")],
    as_json: AsJson = False,
) -> None:
    """The main job in about a minute, on the built-in world: four schemes trained, measured and drawn by bytes."""
    from ..recommender.comparison_report import render_comparison, save_comparison_picture
    from .output import ProgressBar

    with ProgressBar(quiet=as_json) as progress:
        rows, model = run_demo(out, seed=training.seed, progress=progress)
    picture = out / "auc-by-size.png"
    save_comparison_picture(rows, picture)
    if as_json:
        print(json.dumps({"rows": rows, "model": str(model), "picture": str(picture)}))
        return
    Console().print(render_comparison(rows))
    print(f"The picture, accuracy by bytes, is {picture}; the model of the network (dhe) is in {model}.")
    print(f"Next:  tableless recommend {model} --user 7        (any user, also one it has never seen)")
    print("       tableless compare world --schemes all       (every scheme, every size)")
    print("       tableless train YOUR-FILE.csv --out runs/mine")
