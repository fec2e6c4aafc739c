"""Runs that train a recommender: the settings they have in common, and how they are done.

The recipe is a property of a run, never of a scheme: whoever is compared was trained by the same recipe, with the same
rule for stopping.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from tableless.data.config import DataConfig
from tableless.data.loading import load_split
from tableless.data.splits import Split
from tableless.embedding.deep_hash import PAPER_NETWORK
from tableless.files.whole import load_tensors, save_tensors, write_text
from tableless.recommender.models import Recommender, describe_recommender
from tableless.recommender.recipes import train_teacher
from tableless.recommender.runs import ModelConfig, build_model, train_and_measure
from tableless.recommender.stage_settings import teacher_training
from tableless.recommender.teachers import Teacher, untrained_teachers
from tableless.recommender.training import TrainConfig

from .running import Settings

# The data of the paper goes by the names movielens-20m and amazon-books, for those who have the files.
MOVIELENS = DataConfig("movielens-1m")
BOOKS = DataConfig("bookcrossing", core=5)
NEWS = DataConfig("globo")
PLACES = DataConfig("gowalla", split="column")
TWEETED_FILMS = DataConfig("movietweetings")
_NAMES = {
    "movielens-1m": "ML-1M",
    "bookcrossing": "Book-Crossing",
    "globo": "Globo",
    "gowalla": "Gowalla",
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
    model = ModelConfig(
        scheme=scheme, budget=of_parameters(budget), backbone=backbone, options={**network, **(options or {})}
    )
    training = replace(training or TrainConfig(), seed=seed, recipe=recipe)
    if training.select == "auto":  # all lines are of one rule, that of the first: the AUC decides in every stage
        training = replace(training, select="auc")
    if training.loss == "auto":  # what the library does (stage_settings.with_loss), as a line says it
        training = replace(training, loss="softmax" if recipe == "fast" and backbone == "gmf" else "bce")
    # `new_ids` only matters for the scheme auto, which no experiment has. Lines from before it are not to be lost.
    described = {name: value for name, value in asdict(model).items() if name != "new_ids"}
    return {"data": data.settings(), "model": described, "train": _as_lines_say(training)}


def _as_lines_say(training: TrainConfig) -> dict[str, Any]:
    """The settings of a training, without those that came later and say nothing of a loss of pairs.

    So lines and tables of earlier versions are still found. `whole_users` follows from the data.
    """
    described = {name: value for name, value in asdict(training).items() if name != "whole_users"}
    if training.loss != "bce" or training.select != "auc":
        return described
    later = ("loss", "temperature", "similarity", "popularity", "select")
    described = {name: value for name, value in described.items() if name not in later}
    return described | {"num_negatives": training.negatives(are_shared=False)}


def of_parameters(share: str) -> str:
    """A share as the paper counts it: of the full table's parameters. Networks are in float32, as the paper's are.

    1/1 is all of the table, in either unit. Bytes stay bytes.
    """
    return share if share == "1/1" or share.endswith("B/id") else f"{share} parameters"


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
    if training.recipe == "paper":
        return train_and_measure(data, model, training, split, built=built)[1]
    example = build_model(model, split, seed=training.seed) if built is None else built
    return train_and_measure(
        data, model, training, split, teacher=kept_teacher(example, data, split, training), built=built
    )[1]


def kept_teacher(model: Recommender, data: DataConfig, split: Split, training: TrainConfig) -> Teacher:
    """The table that a model learns from; from the disk, if it was trained before."""
    tables = untrained_teachers(model, split)
    path = _teacher_path(tables, data, split, training)
    stages = path.with_suffix(".json")
    if not (path.exists() and stages.exists()):
        teacher = train_teacher(model, split, training)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_tensors(teacher.model.state_dict(), path)
        write_text(stages, json.dumps(teacher.stages))
        return teacher
    tables[-1].load_state_dict(load_tensors(path))
    return Teacher(tables[-1], json.loads(stages.read_text(encoding="utf-8")))


def _teacher_path(tables: Sequence[Recommender], data: DataConfig, split: Split, training: TrainConfig) -> Path:
    """By everything that the last of the tables depends on."""
    lessons = [
        [describe_recommender(table), _as_lines_say(teacher_training(training, table, split))] for table in tables
    ]
    identity = json.dumps([data.settings(), lessons], sort_keys=True)
    return _TEACHERS / f"{sha256(identity.encode()).hexdigest()[:16]}.safetensors"


@functools.lru_cache(maxsize=2)
def split_of(data: DataConfig) -> Split:
    """The data, split; kept for the next run."""
    return load_split(replace(data, data_dir=None))
