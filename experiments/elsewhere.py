"""Does it hold elsewhere? A quarter of the full table's size on data with many rare ids, all by the fast recipe."""

from __future__ import annotations

from collections.abc import Sequence

from tableless.data.config import DataConfig
from tableless.files.whole import Line
from tableless.recommender.training import TrainConfig

from .finished import NOT_RUN, SHOWN, Finished
from .running import Experiment, Settings, main
from .training_runs import LARGE_BATCHES, perform, settings
from .writing import paragraphs, table

SEEDS = range(3)
DATA: dict[str, tuple[DataConfig, TrainConfig | None]] = {
    "MovieTweetings": (DataConfig("movietweetings"), None),
    "Book-Crossing, all of it": (DataConfig("bookcrossing"), LARGE_BATCHES),
}
SCHEMES = {"full": "1/1", "dhe": "1/4", "low-rank": "1/4"}


def runs_of(name: str, scheme: str) -> list[Settings]:
    """The runs of one scheme on one of the datasets, by seed."""
    data, training = DATA[name]
    return [settings(data, scheme, SCHEMES[scheme], seed, recipe="fast", training=training) for seed in SEEDS]


EXPERIMENT = Experiment(
    "elsewhere", [run for name in DATA for scheme in SCHEMES for run in runs_of(name, scheme)], perform
)


def section(lines: Sequence[Line]) -> str:
    """Each scheme, and what the compressed ones lose or gain."""
    finished = Finished(lines)
    rows = []
    for name in DATA:
        full = runs_of(name, "full")
        rows += [
            [
                name,
                f"{scheme} ({budget})",
                *finished.cells(runs_of(name, scheme)),
                "" if scheme == "full" else str(finished.difference(runs_of(name, scheme), full) or NOT_RUN),
                finished.plain(full[:1], "popularity_auc", scale=100, digits=2),
            ]
            for scheme, budget in SCHEMES.items()
        ]
    headings = ["", "GMF, fast recipe", *SHOWN.values(), "AUC over full", "popularity, AUC, %"]
    return paragraphs([table(headings, rows, num_texts=2), finished.measured_on(EXPERIMENT.runs)])


if __name__ == "__main__":
    main(EXPERIMENT)
