"""What kill.py kills: small jobs, what must hold of their files at any moment, and when two ends are the same."""

import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import torch

from tableless import load
from tableless.data.config import DataConfig
from tableless.data.loading import load_split
from tableless.files.scheme_directory import read_json
from tableless.files.whole import load_tensors, read_lines
from tableless.recommender.comparison import Plan, run_comparison
from tableless.recommender.comparison_report import save_comparison_picture, summarise_runs
from tableless.recommender.run_directory import RunDirectory
from tableless.recommender.runs import ModelConfig, train_and_measure
from tableless.recommender.training import TrainConfig
from tableless.serving.bulk.embed_files import embed_file, embed_files
from tableless.serving.export.exporting import export_run
from tests.serving.small_runs import make_run

DATA = DataConfig(data="world:users=60,items=40,actions=1200,clusters=3")
NETWORK = ModelConfig(scheme="dhe", budget="8000", embedding_dim=8, options={"depth": 1, "num_hashes": 16})
TRAINING = TrainConfig(epochs=3, batch_size=256, learning_rate=1e-2)


@dataclass(frozen=True)
class Job:
    """`work(folder)` may be called again after it was cut off; `check(folder)` holds at any moment."""

    work: Callable[[Path], object]
    check: Callable[[Path], None]
    is_same: Callable[[Path, Path], bool]


def prepare(folder: Path) -> None:
    """A model for `embed` and `export`, and ids to embed."""
    make_run(folder / "model", users="dhe", items="full", backbone="gmf")
    random = np.random.default_rng(0)
    for number in range(12):
        ids = random.integers(-(2**63), 2**63 - 1, 2_000)
        (folder / "ids").mkdir(exist_ok=True)
        pl.DataFrame({"id": ids}).write_parquet(folder / "ids" / f"{number:02}.parquet", row_group_size=500)


def train(folder: Path) -> None:
    train_and_measure(DATA, NETWORK, TRAINING, load_split(DATA), out=folder / "run", resume=True)


def check_train(folder: Path) -> None:
    """Every file under its own name is whole; a run that says it has ended answers."""
    check_files(folder)
    files = RunDirectory(folder / "run")
    if files.weights.exists() and files.config.exists():
        files.read_model()
    if files.has_ended:
        load(folder / "run").embed([1, 2], side="user")


def is_same_run(one: Path, other: Path) -> bool:
    models = [load_tensors(folder / "run" / "model.safetensors") for folder in (one, other)]
    epochs = [
        [json.loads(line)["validation_auc"] for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
        for folder in (one, other)
    ]
    lists = [pl.read_parquet(folder / "run" / "items.parquet") for folder in (one, other)]
    same_weights = all(torch.equal(models[0][name], models[1][name]) for name in models[0].keys() | models[1].keys())
    return same_weights and epochs[0] == epochs[1] and lists[0].equals(lists[1])


def compare_schemes(folder: Path) -> None:
    plan = Plan(schemes=["full", "low-rank", "bloom"], budgets=["1/2"], backbones=["gmf"], seeds=2)
    training = TrainConfig(epochs=1, batch_size=256)
    lines = run_comparison(plan, DATA, training, load_split(DATA), out=folder / "results.jsonl", embedding_dim=8)
    save_comparison_picture(summarise_runs(lines), folder / "picture.png")


def check_compare(folder: Path) -> None:
    """Only the last line may have been cut short, or those that were last when a kill came: none is wrong."""
    check_files(folder)
    for line in read_lines(folder / "results.jsonl"):
        assert line["results"]["auc"] > 0


def is_same_comparison(one: Path, other: Path) -> bool:
    def findings(folder: Path) -> dict[str, float]:
        return {
            json.dumps([line["model"], line["train"]]): line["results"]["auc"]
            for line in read_lines(folder / "results.jsonl")
        }

    return findings(one) == findings(other) and (one / "picture.png").exists()


def embed(folder: Path) -> None:
    model, ids = folder.parent / "model", folder.parent / "ids"
    embed_file(model, str(ids / "00.parquet"), str(folder / "one.parquet"), side="user")
    embed_files(model, str(ids), str(folder / "many"), side="user", block_rows=1000)


def is_same_parquet(one: Path, other: Path) -> bool:
    frames = [
        {path.relative_to(folder): pl.read_parquet(path) for path in folder.rglob("*.parquet")}
        for folder in (one, other)
    ]
    return frames[0].keys() == frames[1].keys() and all(frames[0][name].equals(frames[1][name]) for name in frames[0])


def export_model(folder: Path) -> None:
    export_run(folder.parent / "model", folder / "exported", format="torch")


def check_export(folder: Path) -> None:
    """What `export.json` lists is there, and every file can be opened."""
    check_files(folder)
    for path in folder.rglob("export.json"):
        assert all((path.parent / file["file"]).exists() for file in read_json(path)["files"])


def is_same_export(one: Path, other: Path) -> bool:
    said = [read_json(folder / "exported" / "export.json") for folder in (one, other)]
    names = sorted(path.name for path in (one / "exported").iterdir())
    listed = ["export.json", *sorted(file["file"] for file in said[0]["files"])]
    return said[0] == said[1] and names == listed


def check_files(folder: Path) -> None:
    """Each file that has its own name can be read to its end."""
    for path in (path for path in folder.rglob("*") if path.is_file()):
        if path.suffix == ".json":
            read_json(path)
        elif path.name == "metrics.jsonl":
            assert all(isinstance(json.loads(line), dict) for line in path.read_text().splitlines())
        elif path.suffix == ".safetensors":
            load_tensors(path)
        elif path.suffix == ".parquet":
            pl.read_parquet(path)
        elif path.suffix == ".pt2":
            assert zipfile.ZipFile(path).testzip() is None
        elif path.suffix == ".png":
            assert path.read_bytes().endswith(b"IEND\xaeB`\x82")


JOBS = {
    "train": Job(train, check_train, is_same_run),
    "compare": Job(compare_schemes, check_compare, is_same_comparison),
    "embed": Job(embed, check_files, is_same_parquet),
    "export": Job(export_model, check_export, is_same_export),
}
