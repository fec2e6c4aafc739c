"""One click model from data to results, its run directory, and measuring it again."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...data.clicks.reading import ClickConfig, read_clicks
from ...data.clicks.split import NEGATIVES, ClickSplit, split_clicks, whole_table
from ...data.interactions import DataError, Report
from ...data.sources import DATASETS
from ...data.world import World
from ...files.scheme_directory import read_json, read_model
from ..run_directory import RunDirectory
from ..runs import choose_device, versions
from ..training import TrainConfig
from .backbones import CLICK_BACKBONES
from .click_measures import floor_of, measure_clicks, no_better_than_floor, predict
from .click_model import ClickModel, build_click_model, describe_click_model
from .click_recipe import TABLE_DECAY, ClickTeacher, learn_from_teacher, train_click_teacher
from .click_training import ClickTraining, ClickWatchers, test_examples, train_click_model, validation_examples
from .sizing import JOINT, ClickModelConfig, sized_model

KIND = "clicks"
"""What `config.json` says of a run that holds a click model, and not a recommender."""
_MOST_PATIENCE = 3  # a click model overfits within few epochs, long before it would be done by a recommender's patience

_SMALLEST_BATCH, _STEPS = 64, 100  # little data has smaller batches, so that an epoch is so many steps


@dataclass(frozen=True)
class StoredClickRun:
    """A run as it was read."""

    files: RunDirectory
    model: ClickModel
    config: dict[str, Any]

    @cached_property
    def results(self) -> dict[str, Any]:
        """What was measured after training; empty if nothing was."""
        return self.files.read_results()


def is_click_run(path: str | os.PathLike[str]) -> bool:
    """Does the directory hold a click model?"""
    config = RunDirectory(path).config
    return config.exists() and read_json(config).get("kind") == KIND


def read_click_run(path: str | Path) -> StoredClickRun:
    """A click model's run, ready to answer."""
    files = RunDirectory(path)
    if not is_click_run(path):
        raise ValueError(f"{files.path} holds no click model; `tableless train DATA --columns … --out DIR` makes one")
    config = read_json(files.config)
    model = read_model(files.path, config.get("model"), build_click_model)
    return StoredClickRun(files, model.eval(), config)


def require_recommender(backbone: str, scheme: str) -> None:
    """Refuse what only click models have, where a recommender is trained."""
    for name, value, own in (("backbone", backbone, CLICK_BACKBONES), ("scheme", scheme, (JOINT,))):
        if value in own:
            raise ValueError(
                f"{name}={value!r} is for a click model; name its columns by --columns user,item,device (in Python: "
                "tableless.train_clicks)"
            )


def train_and_measure_clicks(
    data: ClickConfig,
    model_config: ClickModelConfig,
    train_config: TrainConfig,
    split: ClickSplit,
    *,
    teacher: ClickTeacher | None = None,
    out: Path | str | None = None,
    recorded_as: str | None = None,
    device: str = "auto",
    watchers: ClickWatchers = ClickWatchers(),  # noqa: B008 - frozen
) -> tuple[ClickModel, dict[str, Any]]:
    """Train and measure one click model; with `out`, leave a run directory. Returns the model and its results.

    With a `teacher` (from `train_click_teacher`) no tables are trained; their time is counted. `recorded_as` is what
    the run says of the data instead of its path.
    """
    start, files = time.perf_counter(), None if out is None else RunDirectory(out)
    if files is not None:
        files.require_free()
    settings = click_training(train_config, split)
    model = sized_model(split, model_config, seed=train_config.seed).to(choose_device(device))
    if train_config.recipe == "paper":
        _require_trainable(model)
        stages = [train_click_model("from nothing", model, split, settings, watchers=watchers)]
    else:
        teacher = teacher or train_click_teacher(split, model_config, settings, device=device, watchers=watchers)
        if all(own.scheme.is_the_table for own in model.value_columns().values()) and model.joint is None:
            model.load_state_dict(teacher.model.state_dict())
            stages = teacher.stages
        else:
            stages = learn_from_teacher(model, teacher, split, settings, watchers=watchers)
    model.pack()  # what is measured is what is stored
    results = measure_click_model(model, split, num_negatives=settings.num_negatives) | {
        "recipe": train_config.recipe,
        "capped": any(stage.get("capped", False) for stage in stages),
        "stages": stages,
        "num_train": len(split.train),
        "values": {name: len(known.ids) for name, known in split.known.items()},
        "seconds": round(time.perf_counter() - start + (_seconds(teacher) if teacher else 0.0), 2),
        **model.sizes(sum(len(known.ids) for known in split.known.values())),
    }
    results["table_bytes"] = 4 * model_config.embedding_dim * sum(len(known.ids) + 1 for known in split.known.values())
    warning = no_better_than_floor(results)
    results |= {"warning": warning} if warning else {}
    if files is not None:
        recorded = replace(data, columns=split.table.columns, data_dir=None, data=recorded_as or data.data)
        files.write_model(
            {
                "kind": KIND,
                "data": recorded.settings(),
                "model": describe_click_model(model),
                "budget": model_config.settings(),
                "train": asdict(train_config) | {"num_negatives": settings.num_negatives},
                "versions": versions(),
            },
            model.state_dict(),
        )
        files.write_results(results)
    return model, results


def measure_click_model(model: ClickModel, split: ClickSplit, *, num_negatives: int = NEGATIVES) -> dict[str, Any]:
    """Test and validation results, and the floor, all on the same rows, as plain values."""
    validation, test = validation_examples(split, num_negatives), test_examples(split, num_negatives)
    train = split.examples(split.train, num_negatives=num_negatives, random=np.random.default_rng(0))
    results: dict[str, Any] = measure_clicks(predict(model, test), test.labels)
    results["evaluated"] = len(test)
    results["validation"] = measure_clicks(predict(model, validation), validation.labels)
    return results | {"popularity": floor_of(split, train, validation, test)}


def evaluate_click_run(
    path: str | Path,
    *,
    data: str | None = None,
    test: str | None = None,
    data_dir: str | None = None,
    report: Report | None = None,
) -> dict[str, Any]:
    """Measure a run again: on the test rows of the data it was trained on, or on all rows of another file, `test`.

    A run may come from a stranger, so no path is opened only because the run names it: `data` is needed unless the run
    was trained on a known dataset or a world.
    """
    run = read_click_run(path)
    recorded = replace(ClickConfig.from_settings(run.config.get("data")), data_dir=data_dir)
    num_negatives = _recorded_number(run.config, "num_negatives", NEGATIVES)
    if test is not None:
        own = whole_table(read_clicks(replace(recorded, data=test, time_col=""), report=report))
        examples = test_examples(own, num_negatives)
        return {**measure_clicks(predict(run.model, examples), examples.labels), "evaluated": len(examples)}
    is_known = recorded.data.lower() in DATASETS or World.parse(recorded.data) is not None
    if data is None and not is_known:
        raise DataError(
            f"the run was trained on {Path(recorded.data).name}; name that file to measure on its test rows (data), or "
            "another one, all of whose rows are measured (test)"
        )
    table = read_clicks(replace(recorded, data=data or recorded.data), report=report)
    split = split_clicks(table, seed=_recorded_number(run.config, "seed", 0))
    return measure_click_model(run.model, split, num_negatives=num_negatives)


def click_training(config: TrainConfig, split: ClickSplit) -> ClickTraining:
    """How the first stage is trained. Settings that a click model has no use for are refused."""
    usual = TrainConfig()
    unused = ("schedule", "loss", "temperature", "similarity", "whole_users", "popularity", "select")
    for name in unused:
        if getattr(config, name) not in (getattr(usual, name), "bce"):
            raise ValueError(
                f"{name} is {getattr(config, name)!r}, and a click model has no use for it: it learns how likely each "
                "click is, and keeps the epoch with the least log loss. Leave it out"
            )
    num_negatives = config.negatives(are_shared=False) if split.table.labels is None else 0
    return ClickTraining(
        epochs=config.epochs,
        patience=min(config.patience, _MOST_PATIENCE),
        batch_size=min(config.batch_size, max(_SMALLEST_BATCH, len(split.train) // _STEPS)) * (1 + num_negatives),
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay or TABLE_DECAY,
        num_negatives=num_negatives,
        one_cycle=False,
        seed=config.seed,
    )


def _require_trainable(model: ClickModel) -> None:
    for name, own in model.value_columns().items():
        if own.scheme.needs_table:
            raise ValueError(
                f"{type(own.scheme).__name__} (column {name!r}) codes the rows of a trained table and cannot be "
                "trained from nothing; take the recipe fast"
            )


def _seconds(teacher: ClickTeacher) -> float:
    return sum(stage["seconds"] for stage in teacher.stages)


def _recorded_number(config: Mapping[str, Any], name: str, usual: int) -> int:
    trained = config.get("train")
    value = trained.get(name, usual) if isinstance(trained, dict) else usual
    return value if isinstance(value, int) else usual
