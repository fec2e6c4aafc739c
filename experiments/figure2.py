"""Figure 2 (RQ1): AUC against model size, every scheme, GMF and MLP, on dense, sparse and large data."""

from __future__ import annotations

from dataclasses import replace

from tableless import SCHEMES
from tableless.recommender.runs import DataConfig
from tableless.recommender.training import TrainConfig

from .running import Experiment, Settings, main
from .training_runs import BOOKS, LARGE_BATCHES, MOVIELENS, NEWS, SMALL_BATCHES, perform, settings

SEEDS = range(3)
BUDGETS = ["1/4", "1/8", "1/2"]
COMPRESSED = [name for name in SCHEMES if name != "full"]
# At 1/8 a low-rank table has three dimensions: it rests at the level of popularity for ten epochs before it rises.
PATIENT = replace(SMALL_BATCHES, patience=15)


def _runs(data: DataConfig, backbone: str, budgets: list[str], training: TrainConfig) -> list[Settings]:
    full = [settings(data, "full", "1/1", seed, backbone=backbone, training=training) for seed in SEEDS]
    return full + [
        settings(
            data,
            scheme,
            budget,
            seed,
            backbone=backbone,
            training=PATIENT if (scheme, budget, data) == ("low-rank", "1/8", MOVIELENS) else training,
        )
        for budget in budgets
        for scheme in COMPRESSED
        for seed in SEEDS
    ]


EXPERIMENT = Experiment(
    "figure2",
    [
        *_runs(MOVIELENS, "gmf", BUDGETS, SMALL_BATCHES),
        *_runs(BOOKS, "gmf", ["1/4"], SMALL_BATCHES),
        *_runs(MOVIELENS, "mlp", ["1/4"], SMALL_BATCHES),
        *_runs(NEWS, "gmf", ["1/4"], LARGE_BATCHES),
        *_runs(BOOKS, "mlp", ["1/4"], SMALL_BATCHES),
        *_runs(BOOKS, "gmf", ["1/8", "1/2"], SMALL_BATCHES),
        *_runs(MOVIELENS, "mlp", ["1/8", "1/2"], SMALL_BATCHES),
    ],
    perform,
)

if __name__ == "__main__":
    main(EXPERIMENT)
