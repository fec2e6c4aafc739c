"""Table 3 (RQ2): the encodings that DHE could have, compared at equal parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tableless.data.config import DataConfig
from tableless.data.splits import Split
from tableless.files.whole import Line

from .claims import Claim
from .finished import Finished
from .running import Experiment, Settings, main
from .training_runs import MOVIELENS, RECIPES, Recipe, perform_on, settings, split_of
from .writing import metrics_by_recipe, paragraphs, table

SEEDS = range(3)
# The name of the row, the options of the scheme, and the paper's AUC of GMF on MovieLens-20M.
ENCODINGS: list[tuple[str, dict[str, Any], float]] = [
    ("identity", {"encoding": "identity"}, 94.99),
    ("binary", {"encoding": "binary"}, 97.38),
    ("random Fourier", {"encoding": "random-fourier"}, 94.98),
    ("dense hash, Gaussian", {"distribution": "gaussian"}, 97.62),
    ("dense hash, uniform", {"distribution": "uniform"}, 97.66),
]


def perform(settings: Settings) -> dict[str, Any]:
    """Train and measure on ids that are numbered 0, 1, …, as the paper's are: some encodings know no others."""
    return perform_on(numbered(split_of(DataConfig(**settings["data"]))), settings)


def numbered(split: Split) -> Split:
    """The same split, where the id of a row is its number."""
    train = split.train
    users, items = np.arange(train.num_users), np.arange(train.num_items)
    return replace(split, train=replace(train, user_ids=users, item_ids=items))


def _runs(options: dict[str, Any], recipe: Recipe) -> list[Settings]:
    return [settings(MOVIELENS, "dhe", "1/4", seed, recipe=recipe, options=options) for seed in SEEDS]


EXPERIMENT = Experiment(
    "table3", [run for recipe in RECIPES for _, options, _ in ENCODINGS for run in _runs(options, recipe)], perform
)

_UNIFORM = ENCODINGS[-1][1]
CLAIMS = [
    Claim(
        f"uniform dense hashing is above {name}", _runs(_UNIFORM, recipe), _runs(options, recipe), paper=97.66 - paper
    )
    for recipe in RECIPES
    for name, options, paper in ENCODINGS[:-1]
]


def section(lines: Sequence[Line]) -> str:
    """The table, beside the paper's."""
    finished = Finished(lines)
    rows = [
        [name, *(cell for recipe in RECIPES for cell in finished.cells(_runs(options, recipe))), f"{paper:.2f}"]
        for name, options, paper in ENCODINGS
    ]
    popularity = finished.plain(_runs(_UNIFORM, "paper")[:1], "popularity_auc", scale=100, digits=2)
    return paragraphs(
        [
            "Ids are numbered from 0 here, as the paper's are. ML-1M, GMF, 1/4. As published: 1024 hashes or Fourier "
            "features, five layers, batch norm; ours: 64, four layers.",
            table(["encoding", *metrics_by_recipe(), "paper: ML-20M, GMF, 1/4, AUC"], rows),
            f"Popularity alone, on ML-1M: AUC {popularity}. {finished.measured_on(EXPERIMENT.runs)}".strip(),
        ]
    )


if __name__ == "__main__":
    main(EXPERIMENT)
