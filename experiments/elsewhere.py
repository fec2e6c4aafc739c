"""Does it hold elsewhere? DHE at a quarter of the full table's size on data with many rare ids."""

from __future__ import annotations

from tableless.recommender.runs import DataConfig

from .running import Experiment, main
from .training_runs import LARGE_BATCHES, SMALL_BATCHES, perform, settings

TWEETS = DataConfig("movietweetings")
ALL_BOOKS = DataConfig("bookcrossing")

EXPERIMENT = Experiment(
    "elsewhere",
    [
        settings(data, scheme, budget, seed, training=training)
        for data, training in ((TWEETS, SMALL_BATCHES), (ALL_BOOKS, LARGE_BATCHES))
        for seed in range(3)
        for scheme, budget in (("full", "1/1"), ("dhe", "1/4"))
    ],
    perform,
)

if __name__ == "__main__":
    main(EXPERIMENT)
