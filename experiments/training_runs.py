"""Runs that train a recommender: the settings they have in common, and how they are done.

The recipe is a property of a run, never of a scheme: whoever is compared was trained by the same recipe, with the same
rule for stopping.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from tableless.embedding.deep_hash import PAPER_NETWORK
from tableless.embedding.tensor_files import load_tensors, save_tensors
from tableless.embedding.whole_files import write_text
from tableless.recommender.models import MLP, Recommender
from tableless.recommender.recipes import teacher_training, untrained_teachers
from tableless.recommender.runs import DataConfig, ModelConfig, build_model, load_split, run
from tableless.recommender.splits import Split
from tableless.recommender.training import TrainConfig, train

from .running import Settings

# The data of the paper goes by the names movielens-20m and amazon-books, for those who have the files.
MOVIELENS = DataConfig("movielens-1m")
BOOKS = DataConfig("bookcrossing", core=5)
NEWS = DataConfig("globo")
_NAMES = {
    "movielens-1m": "ML-1M",
    "bookcrossing": "Book-Crossing",
    "globo": "Globo",
    "movietweetings": "MovieTweetings",
}

Recipe = Literal["fast", "paper"]
RECIPES: dict[Recipe, str] = {"paper": "as published", "fast": "ours, fast recipe"}
_NETWORKS = ("dhe", "head-and-tail")  # schemes that compute vectors, and so have a network to be chosen
# Our network under the paper's recipe, which would take the paper's.
OUR_NETWORK: dict[str, Any] = {"num_hashes": 64, "depth": 4, "normalization": "none"}
# A step of Adam costs the whole table, so large vocabularies are trained in fewer, larger steps.
LARGE_BATCHES = TrainConfig(batch_size=8192, learning_rate=2e-3)

_TEACHERS = Path("out/experiments/teachers")


def settings(
    data: DataConfig,
    scheme: str,
    budget: str,
    seed: int,
    *,
    recipe: Recipe,
    backbone: str = "gmf",
    options: dict[str, Any] | None = None,
    training: TrainConfig | None = None,
) -> Settings:
    """The run of one model, as plain values; networks of the paper's recipe are the paper's where nothing is said."""
    network = PAPER_NETWORK if recipe == "paper" and scheme in _NETWORKS else {}
    model = ModelConfig(scheme=scheme, budget=budget, backbone=backbone, options={**network, **(options or {})})
    training = replace(training or TrainConfig(), seed=seed, recipe=recipe)
    return {"data": asdict(data), "model": asdict(model), "train": asdict(training)}


def name_of_data(data: Mapping[str, Any]) -> str:
    """The data of a run, as tables call it."""
    core = f" {data['core']}-core" if data.get("core") else ""
    return _NAMES.get(data["data"], data["data"]) + core


def perform(settings: Settings) -> dict[str, Any]:
    """Train and measure. The table that the fast recipe learns from is kept for the next run, its time counted."""
    return perform_on(split_of(DataConfig(**settings["data"])), settings)


def perform_on(split: Split, settings: Settings, built: Recommender | None = None) -> dict[str, Any]:
    """As `perform`, on a split that somebody has prepared further, or with a model that somebody has built."""
    data, model = DataConfig(**settings["data"]), ModelConfig(**settings["model"])
    training = TrainConfig(**settings["train"])
    if training.recipe == "paper" or model.scheme == "full":
        return run(data, model, training, split, built=built)[1]
    example = build_model(model, split, seed=training.seed) if built is None else built
    teacher, stages = trained_teacher(example, data, split, training)
    results = run(data, model, training, split, teacher=teacher, built=built)[1]
    seconds = sum(stage["seconds"] for stage in stages)
    return results | {
        "seconds": round(results["seconds"] + seconds, 2),
        "teacher_seconds": round(seconds, 2),
        "stages": [*stages, *results.get("stages", [])],
        "capped": bool(results.get("capped")) or any(stage["capped"] for stage in stages),
    }


def trained_teacher(
    model: Recommender, data: DataConfig, split: Split, training: TrainConfig
) -> tuple[Recommender, list[dict[str, Any]]]:
    """The table that a model learns from, and the stages of its training; from the disk, if it was trained before."""
    teacher, stages = None, []
    for table in untrained_teachers(model, split):
        own = teacher_training(training, table)
        path = _teacher_path(table, data, own)
        if not (path.exists() and path.with_suffix(".json").exists()):
            start = time.perf_counter()
            reports = train(table, split, own, teacher=teacher)
            stage = {
                "stage": f"table ({type(table).__name__})",
                "epochs": len(reports),
                "best_epoch": next((each.epoch for each in reversed(reports) if each.is_best), None),
                # It ends by itself when the best epoch is long enough ago; else it ended at the limit.
                "capped": len(reports) >= own.epochs and _since_best(reports) < own.patience,
                "seconds": round(time.perf_counter() - start, 2),
                "settings": asdict(own),
            }
            path.parent.mkdir(parents=True, exist_ok=True)
            save_tensors(table.state_dict(), path)
            write_text(path.with_suffix(".json"), json.dumps(stage))
        table.load_state_dict(load_tensors(path))
        stages.append(json.loads(path.with_suffix(".json").read_text(encoding="utf-8")))
        teacher = table
    assert teacher is not None
    return teacher, stages


def _since_best(reports: list[Any]) -> int:
    best = next((index for index in reversed(range(len(reports))) if reports[index].is_best), 0)
    return len(reports) - 1 - best


def _teacher_path(teacher: Recommender, data: DataConfig, training: TrainConfig) -> Path:
    identity = [asdict(data), type(teacher).__name__, teacher.users.embedding_dim, teacher.seed, asdict(training)]
    if isinstance(teacher, MLP):
        identity.append(teacher.item_features.config if teacher.item_features else "learned from GMF")
    name = sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    return _TEACHERS / f"{name}.safetensors"


@functools.lru_cache(maxsize=2)
def split_of(data: DataConfig) -> Split:
    """The data, split; kept for the next run."""
    return load_split(replace(data, data_dir=None))
