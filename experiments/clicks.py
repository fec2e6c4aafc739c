"""Click models with several columns: full tables, and smaller ones at equal bytes, all by the fast recipe.

Every model of a dataset and a seed learns from the same tables. Columns with few values stay tables in all of them, and
the budget pays for these as well.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tableless.files.whole import Line
from tableless.recommender.clicks.click_recipe import ClickTeacher, train_click_teacher
from tableless.recommender.clicks.click_runs import click_training, train_and_measure_clicks
from tableless.recommender.clicks.sizing import JOINT, ClickModelConfig
from tableless.recommender.training import TrainConfig

from .click_data import SOURCES, click_split
from .finished import Finished
from .running import Experiment, Settings, main
from .writing import paragraphs, table

SEEDS = range(3)
FULL = "full"
SMALL = ["low-rank", JOINT, "coded", "dhe"]
BUDGET, DIM, NEGATIVES = "1/12", 16, 2
LOG_LOSS = "log_loss"


def perform(settings: Settings) -> dict[str, Any]:
    """Train by the recipe, measure on the test rows."""
    config, split = click_split(settings["data"])
    model, training = ClickModelConfig(**settings["model"]), TrainConfig(**settings["train"])
    teacher = _teacher(settings["data"], model.backbone, model.embedding_dim, training)
    _, results = train_and_measure_clicks(config, model, training, split, teacher=teacher)
    return results


@functools.lru_cache(maxsize=1)
def _teacher(data: str, backbone: str, dim: int, training: TrainConfig) -> ClickTeacher:
    """The tables that all models of one kind and seed learn from."""
    split = click_split(data)[1]
    config = ClickModelConfig(backbone, FULL, embedding_dim=dim)
    return train_click_teacher(split, config, click_training(training, split))


def runs_of(data: str, scheme: str) -> list[Settings]:
    """The runs of one scheme, by seed. `every` says which users there are: one in so many."""
    model = {"backbone": "deepfm", "scheme": scheme, "budget": BUDGET, "embedding_dim": DIM}
    every = SOURCES[data].every
    return [
        {"data": data, "every": every, "model": model, "train": {"num_negatives": NEGATIVES, "seed": seed}}
        for seed in SEEDS
    ]


# The models of a dataset and a seed come one after the other: the tables are then trained once for all of them.
EXPERIMENT = Experiment(
    "clicks",
    [runs_of(data, scheme)[seed] for seed in SEEDS for data in SOURCES for scheme in (FULL, *SMALL)],
    perform,
)


def section(lines: Sequence[Line]) -> str:
    """AUC and log loss of each scheme on each dataset, and what one column alone says."""
    finished = Finished(lines)
    parts = [
        f"Not in the paper. DeepFM, one vector of {DIM} dimensions for each column; all but `full` have {BUDGET} of "
        "the bytes of all full tables. `joint` is one network for all columns with more than 1,000 values. Rows for "
        "validation and test are drawn at random, a tenth each. The floor of the AUC are the click rates of one column "
        "alone, the best one; that of the log loss is the base rate.",
    ]
    for data, source in SOURCES.items():
        rows = []
        for scheme in (FULL, *SMALL):
            own = runs_of(data, scheme)
            ahead = str(finished.difference(own, runs_of(data, "low-rank")) or "") if scheme != "low-rank" else ""
            log_loss = finished.plain(own, LOG_LOSS, digits=4)
            rows.append([scheme, finished.cell(own), log_loss, ahead, finished.plain(own[:1], "bytes")])
        first = runs_of(data, FULL)[:1]
        floor = [finished.plain(first, "popularity.auc", scale=100, digits=2)]
        floor.append(finished.plain(first, "popularity.base_rate_log_loss", digits=4))
        rows.append(["floor", *floor, "", ""])
        parts.append(table([source.title, "AUC, %", "log loss", "AUC above low-rank", "bytes"], rows))
    return paragraphs(parts)


if __name__ == "__main__":
    main(EXPERIMENT)
