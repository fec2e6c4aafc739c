"""Students: how much of its table's accuracy a network keeps, at 1/4 and 1/8 of the parameters, by two losses."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from tableless.data.config import DataConfig
from tableless.files.whole import Line
from tableless.recommender.training import TrainConfig

from .finished import NOT_RUN, Finished
from .running import Experiment, Settings, main
from .training_runs import BOOKS, MOVIELENS, PLACES, name_of_data, perform, settings
from .writing import paragraphs, table

SEEDS = range(3)
SIZES: list[tuple[DataConfig, tuple[str, ...]]] = [
    (MOVIELENS, ("1/4", "1/8")),
    (BOOKS, ("1/4",)),
    (PLACES, ("1/4",)),
]
LOSSES = ("bce", "softmax")
_TABLE = "1/1"
_SHOWN = {"auc": "AUC, %", "ndcg@10": "NDCG@10, %", "recall@20": "Recall@20, %"}


def runs_of(data: DataConfig, budget: str, loss: str) -> list[Settings]:
    """A network of this size, or the table that it learns from, by seed."""
    scheme = "full" if budget == _TABLE else "dhe"
    training = TrainConfig(loss=loss)  # type: ignore[arg-type]
    return [settings(data, scheme, budget, seed, recipe="fast", training=training) for seed in SEEDS]


EXPERIMENT = Experiment(
    "students",
    [run for data, sizes in SIZES for size in (_TABLE, *sizes) for loss in LOSSES for run in runs_of(data, size, loss)],
    perform,
)


def section(lines: Sequence[Line]) -> str:
    """A table for each dataset: the table and its students, and what they keep of it.

    No time of the recipe beside that of its table: tables are kept, and were trained under another load.
    """
    finished = Finished(lines)
    parts = [
        "`dhe` in float32 by the fast recipe, GMF, beside the table that it learned from. What it keeps is a share of "
        "the table's own, seed by seed."
    ]
    for data, sizes in SIZES:
        rows = [
            [size.replace(_TABLE, "table"), loss, *(finished.cell(own, metric) for metric in _SHOWN), *kept]
            for size in (_TABLE, *sizes)
            for loss in LOSSES
            for own in [runs_of(data, size, loss)]
            for kept in [_kept(finished, own, runs_of(data, _TABLE, loss))]
        ]
        head = [f"**{name_of_data(data.settings())}**", "loss", *_SHOWN.values()]
        parts.append(table([*head, "NDCG@10 kept", "Recall@20 kept"], rows))
        parts.append(finished.measured_on([run for size in sizes for run in runs_of(data, size, LOSSES[0])]))
    return paragraphs(parts)


def _kept(finished: Finished, own: Sequence[Settings], of_table: Sequence[Settings]) -> list[str]:
    """The share of NDCG@10 and Recall@20 that students keep."""
    shares = []
    for metric in ("ndcg@10", "recall@20"):
        pairs = [[finished.values([run], metric) for run in both] for both in zip(own, of_table, strict=True)]
        found = [student[0] / teacher[0] for student, teacher in pairs if student and teacher]
        shares.append(f"{100 * mean(found):.0f} %" if found else NOT_RUN)
    return shares


if __name__ == "__main__":
    main(EXPERIMENT)
