"""Runs that train a recommender: the settings they have in common, and how they are done."""

from __future__ import annotations

import functools
import json
import time
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from tableless.embedding.tensor_files import load_tensors, save_tensors
from tableless.embedding.whole_files import write_text
from tableless.recommender.models import GMF, MLP, Recommender
from tableless.recommender.recipes import teacher_training, untrained_teachers
from tableless.recommender.runs import DataConfig, ModelConfig, build_model, load_split, run
from tableless.recommender.splits import Split
from tableless.recommender.training import TrainConfig, train

from .running import Settings

# The data of the paper goes by the names movielens-20m and amazon-books, for those who have the files.
MOVIELENS = DataConfig("movielens-1m")
BOOKS = DataConfig("bookcrossing", core=5)
NEWS = DataConfig("globo")
SMALL_BATCHES = TrainConfig()
# A step of Adam costs the whole table, so large vocabularies are trained in fewer, larger steps.
LARGE_BATCHES = TrainConfig(batch_size=8192, learning_rate=2e-3)

_TEACHERS = Path("out/experiments/teachers")


def settings(
    data: DataConfig,
    scheme: str,
    budget: str,
    seed: int,
    *,
    backbone: str = "gmf",
    options: dict[str, Any] | None = None,
    training: TrainConfig = SMALL_BATCHES,
) -> Settings:
    """The run of one model, as plain values."""
    model = ModelConfig(scheme=scheme, budget=budget, backbone=backbone, options=options or {})
    return {"data": data.settings(), "model": asdict(model), "train": asdict(replace(training, seed=seed))}


def perform(settings: Settings) -> dict[str, Any]:
    """Train and measure. The table that the fast recipe learns from is kept for the next run, its time counted."""
    return perform_on(split_of(DataConfig(**settings["data"])), settings)


def perform_on(split: Split, settings: Settings) -> dict[str, Any]:
    """As `perform`, on a split of the data that somebody has prepared further."""
    data, model = DataConfig(**settings["data"]), ModelConfig(**settings["model"])
    training = TrainConfig(**settings["train"])
    example = build_model(model, split, seed=training.seed)
    if model.scheme == "full":
        trained, results = run(data, model, training, split)
        if isinstance(trained, GMF):  # may be what others learn from
            _keep_teacher(_teacher_path(trained, data, training), trained, results["seconds"])
        return results
    if training.recipe != "fast" or not example.users.is_computed:
        return run(data, model, training, split)[1]
    teacher, teacher_seconds = trained_teacher(example, data, split, training)
    results = run(data, model, training, split, teacher=teacher)[1]
    return results | {
        "seconds": round(results["seconds"] + teacher_seconds, 2),
        "teacher_seconds": round(teacher_seconds, 2),
    }


def trained_teacher(
    model: Recommender, data: DataConfig, split: Split, training: TrainConfig
) -> tuple[Recommender, float]:
    """The table that a model learns from, and the seconds of its training; from the disk, if it was trained before."""
    teacher, seconds = None, 0.0
    for table in untrained_teachers(model, split):
        own = teacher_training(training, table)
        path = _teacher_path(table, data, own)
        if not (path.exists() and path.with_suffix(".seconds").exists()):
            start = time.perf_counter()
            train(table, split, own, teacher=teacher)
            _keep_teacher(path, table, time.perf_counter() - start)
        table.load_state_dict(load_tensors(path))
        seconds += float(path.with_suffix(".seconds").read_text())
        teacher = table
    assert teacher is not None
    return teacher, seconds


def _keep_teacher(path: Path, teacher: Recommender, seconds: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_tensors(teacher.state_dict(), path)
    write_text(path.with_suffix(".seconds"), f"{seconds:.2f}")


def _teacher_path(teacher: Recommender, data: DataConfig, training: TrainConfig) -> Path:
    identity = [data.settings(), type(teacher).__name__, teacher.users.embedding_dim, teacher.seed, asdict(training)]
    if isinstance(teacher, MLP):
        identity.append(teacher.item_features.config if teacher.item_features else "learned from GMF")
    name = sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    return _TEACHERS / f"{name}.safetensors"


@functools.lru_cache(maxsize=2)
def split_of(data: DataConfig) -> Split:
    """The data, split; kept for the next run."""
    return load_split(replace(data, data_dir=None))
