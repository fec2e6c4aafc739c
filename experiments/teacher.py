"""Teacher: DHE trained end to end, only fitted to a trained table, and both, with the time that each takes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain
from typing import Any

from tableless.embedding.deep_hash import PAPER_NETWORK
from tableless.recommender.lines import Line
from tableless.recommender.recipes import fit_to_teacher, train_fast
from tableless.recommender.runs import DataConfig, ModelConfig, build_model, measure
from tableless.recommender.training import TrainConfig, train

from .finished import NOT_RUN, Finished
from .running import Experiment, Settings, main
from .training_runs import MOVIELENS, settings, split_of, trained_teacher
from .writing import table

SEEDS = range(3)
FITTED, TUNED = "fitted to a table", "fitted, then tuned (the fast recipe)"
# Meant to take about as long as the fast recipe, and three times as long; the seconds are in the table. Fixed numbers
# rather than a clock: a result must not depend on how busy the machine is.
END_TO_END = {"end to end, 8 epochs": 8, "end to end, 24 epochs": 24}
PUBLISHED = "end to end, 8 epochs, the published network"
WAYS = [FITTED, TUNED, *END_TO_END, PUBLISHED]


def perform(settings: Settings) -> dict[str, Any]:
    """Train in one of the ways; the seconds include those of the table that was learned from."""
    data, training = DataConfig(**settings["data"]), TrainConfig(**settings["train"])
    split = split_of(data)
    way = settings["way"]
    model = build_model(ModelConfig(**settings["model"]), split, seed=training.seed)
    start, before = time.perf_counter(), 0.0
    if way in (FITTED, TUNED):
        teacher, before = trained_teacher(model, data, split, training)
        start = time.perf_counter()
        if way == FITTED:
            fit_to_teacher(model, teacher, split, seed=training.seed)
        else:
            train_fast(model, split, training, teacher=teacher)
    else:
        train(model, split, training)
    return {"train_seconds": round(before + time.perf_counter() - start, 2)} | measure(model, split)


def _runs(way: str) -> list[Settings]:
    options = PAPER_NETWORK if way == PUBLISHED else {}
    epochs = 8 if way == PUBLISHED else END_TO_END.get(way)
    runs = [settings(MOVIELENS, "dhe", "1/4", seed, options=options) for seed in SEEDS]
    for run in runs:
        run["way"] = way
        if epochs:
            run["train"]["epochs"] = epochs
    return runs


EXPERIMENT = Experiment("teacher", list(chain.from_iterable(_runs(way) for way in WAYS)), perform)


def section(lines: Sequence[Line]) -> str:
    """AUC and seconds of each way, and what the table is worth."""
    finished = Finished(lines)
    rows = [
        [way, finished.cell(_runs(way)), finished.cell(_runs(way), "train_seconds", scale=1, digits=0)] for way in WAYS
    ]
    tuning = finished.difference(_runs(TUNED), _runs(FITTED)) or NOT_RUN
    gains = [f"{way}: {finished.difference(_runs(TUNED), _runs(way)) or NOT_RUN}" for way in (*END_TO_END, PUBLISHED)]
    return "\n\n".join(
        [
            "Not in the paper, which trains end to end. ML-1M, GMF, 1/4; seconds on one core, the table's training "
            "included, early stopping as everywhere.",
            table(["way of training", "AUC, %", "seconds"], rows),
            f"Tuning adds {tuning} to the fit. The fast recipe against {'; '.join(gains)}.",
        ]
    )


if __name__ == "__main__":
    main(EXPERIMENT)
