"""Teacher: DHE trained end to end until it ends by itself, or by way of a table, with the time that each takes."""

from __future__ import annotations

from collections.abc import Sequence

from tableless.files.whole import Line

from .finished import NOT_RUN, SHOWN, Finished
from .running import Experiment, Settings, main
from .training_runs import MOVIELENS, OUR_NETWORK, perform, settings
from .writing import paragraphs, table

SEEDS = range(3)
FAST = "by way of a table (the fast recipe)"
OURS_END_TO_END, PUBLISHED = "end to end, our network", "end to end, as published"
WAYS = [FAST, OURS_END_TO_END, PUBLISHED]


def _runs(way: str) -> list[Settings]:
    if way == FAST:
        return [settings(MOVIELENS, "dhe", "1/4", seed, recipe="fast") for seed in SEEDS]
    options = OUR_NETWORK if way == OURS_END_TO_END else {}
    return [settings(MOVIELENS, "dhe", "1/4", seed, recipe="paper", options=options) for seed in SEEDS]


EXPERIMENT = Experiment("teacher", [run for way in WAYS for run in _runs(way)], perform)


def section(lines: Sequence[Line]) -> str:
    """Accuracy and seconds of each way, and what the table is worth."""
    finished = Finished(lines)
    rows = [
        [way, *finished.cells(_runs(way)), finished.plain(_runs(way), "epochs"), finished.plain(_runs(way), "seconds")]
        for way in WAYS
    ]
    gains = [f"{way}: {finished.difference(_runs(FAST), _runs(way)) or NOT_RUN}" for way in WAYS[1:]]
    return paragraphs(
        [
            "Not in the paper, which trains end to end. ML-1M, GMF, 1/4; seconds on one core, the table's training "
            "included; epochs are of the last stage.",
            table(["way of training", *SHOWN.values(), "epochs", "seconds"], rows),
            f"AUC of the fast recipe over {'; over '.join(gains)}. {finished.measured_on(EXPERIMENT.runs)}".strip(),
        ]
    )


if __name__ == "__main__":
    main(EXPERIMENT)
