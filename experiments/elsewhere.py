"""Does it hold elsewhere? DHE at a quarter of the full table's size on data with many rare ids."""

from __future__ import annotations

from collections.abc import Sequence

from tableless.recommender.lines import Line
from tableless.recommender.runs import DataConfig

from .finished import NOT_RUN, Finished
from .running import Experiment, main
from .training_runs import LARGE_BATCHES, SMALL_BATCHES, perform, settings
from .writing import table

TWEETS = DataConfig("movietweetings")
ALL_BOOKS = DataConfig("bookcrossing")

EXPERIMENT = Experiment(
    "elsewhere",
    [
        settings(data, scheme, budget, seed, training=training)
        for data, training, seeds in ((TWEETS, SMALL_BATCHES, range(5)), (ALL_BOOKS, LARGE_BATCHES, range(3)))
        for seed in seeds
        for scheme, budget in (("full", "1/1"), ("dhe", "1/4"))
    ],
    perform,
)


def section(lines: Sequence[Line]) -> str:
    """AUC of both, and what DHE loses or gains."""
    finished = Finished(lines)
    rows = []
    for name, data in (("MovieTweetings", TWEETS), ("Book-Crossing, all of it", ALL_BOOKS)):
        own = [run for run in EXPERIMENT.runs if run["data"]["data"] == data.data]
        full, dhe = ([run for run in own if run["model"]["scheme"] == scheme] for scheme in ("full", "dhe"))
        rows.append(
            [
                name,
                finished.cell(full[:1], "popularity_auc"),
                finished.cell(full),
                finished.cell(dhe),
                str(finished.difference(dhe, full) or NOT_RUN),
            ]
        )
    return table(["AUC, %", "popularity", "full", "dhe, 1/4", "dhe over full"], rows)


if __name__ == "__main__":
    main(EXPERIMENT)
