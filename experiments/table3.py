"""Table 3 (RQ2): the encodings that DHE could have, compared at equal parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from tableless.recommender.lines import Line
from tableless.recommender.runs import DataConfig
from tableless.recommender.splits import Split

from .claims import Claim
from .finished import Finished
from .running import Experiment, Settings, main
from .training_runs import MOVIELENS, perform_on, settings, split_of
from .writing import table

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


def _runs(options: dict[str, Any]) -> list[Settings]:
    return [settings(MOVIELENS, "dhe", "1/4", seed, options=options) for seed in SEEDS]


EXPERIMENT = Experiment("table3", list(chain.from_iterable(_runs(options) for _, options, _ in ENCODINGS)), perform)

_UNIFORM = _runs(ENCODINGS[-1][1])
CLAIMS = [
    Claim(f"uniform dense hashing is above {name}", _UNIFORM, _runs(options), paper=97.66 - paper)
    for name, options, paper in ENCODINGS[:-1]
]


def section(lines: Sequence[Line]) -> str:
    """The table, beside the paper's."""
    finished = Finished(lines)
    rows = [[name, finished.cell(_runs(options)), f"{paper:.2f}"] for name, options, paper in ENCODINGS]
    return "\n\n".join(
        [
            "Ids are numbered from 0 here, as the paper's are. Fast recipe, 64 hashes or Fourier features.",
            table(["encoding", "ours: ML-1M, GMF, 1/4", "paper: ML-20M, GMF, 1/4"], rows),
            f"Popularity alone, on ML-1M: {finished.cell(_UNIFORM[:1], 'popularity_auc')}.",
        ]
    )


if __name__ == "__main__":
    main(EXPERIMENT)
