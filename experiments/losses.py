"""Losses: full tables by each loss of ours, and by implicit's ALS and BPR, on the same split and one core.

Each rival is tuned by NDCG@10 on the validation data, over a grid. Its seconds are those of the setting chosen.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tableless.data.config import DataConfig
from tableless.data.splits import Split
from tableless.files.whole import Line
from tableless.recommender.evaluation import measure_scorer
from tableless.recommender.scoring import by_rows
from tableless.recommender.training import TrainConfig

from . import training_runs
from .finished import Finished
from .running import Experiment, Settings, main
from .training_runs import BOOKS, MOVIELENS, PLACES, TWEETED_FILMS, name_of_data, settings, split_of
from .writing import paragraphs, table

SEEDS = range(3)
DATA: list[DataConfig] = [MOVIELENS, BOOKS, PLACES, TWEETED_FILMS]
LOSSES = ("softmax", "bce", "bpr")
# Of both, the setting with the best NDCG@10 on validation data is taken.
RIVALS: dict[str, list[dict[str, Any]]] = {
    "als": [{"alpha": alpha, "regularization": decay} for alpha in (1.0, 10.0, 40.0) for decay in (1.0, 30.0, 100.0)],
    "bpr": [{"learning_rate": rate, "regularization": decay} for rate in (0.01, 0.03) for decay in (0.003, 0.03)],
}
_SHOWN = {"auc": "AUC, %", "ndcg@10": "NDCG@10, %", "recall@20": "Recall@20, %"}


def runs_of(data: DataConfig, way: str) -> list[Settings]:
    """The table by a loss of ours, or by a method of implicit (`implicit-als`), by seed."""
    library, _, method = way.rpartition("-")
    if library:
        model = {"library": library, "method": method, "embedding_dim": 32, "grid": RIVALS[method]}
        return [{"data": data.settings(), "model": model, "train": {"seed": seed}} for seed in SEEDS]
    return [
        settings(data, "full", "1/1", seed, recipe="fast", training=TrainConfig(loss=way))  # type: ignore[arg-type]
        for seed in SEEDS
    ]


WAYS = [*LOSSES, *(f"implicit-{method}" for method in RIVALS)]


def perform(settings: Settings) -> dict[str, Any]:
    """Train one table, ours or implicit's, and measure it."""
    if "library" not in settings["model"]:
        return training_runs.perform(settings)
    split, seed = split_of(DataConfig(**settings["data"])), settings["train"]["seed"]
    method, dim = settings["model"]["method"], settings["model"]["embedding_dim"]
    tried = []
    for options in settings["model"]["grid"]:
        start = time.perf_counter()
        users, items = implicit_table(split, method, dim, seed, options)
        seconds = time.perf_counter() - start
        found = measure_scorer(by_rows(lambda rows: users[rows] @ items.T), split, on="validation", known_only=True)  # noqa: B023
        tried.append((found["ndcg@10"], options, seconds, found, (users, items)))
    _, options, seconds, validation, (users, items) = max(tried, key=lambda each: each[0])
    test = measure_scorer(by_rows(lambda rows: users[rows] @ items.T), split, on="test", known_only=True)
    return test.as_dict() | {"validation": validation.as_dict(), "options": options, "seconds": round(seconds, 2)}


def implicit_table(
    split: Split, method: str, dim: int, seed: int, options: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The vectors of all known users and items, by the library implicit on one thread."""
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking
    from scipy.sparse import csr_matrix
    from threadpoolctl import threadpool_limits

    starts = np.asarray(split.train.starts)[: split.num_known_users + 1]
    shape = split.num_known_users, split.num_known_items
    actions = csr_matrix((np.ones(starts[-1], np.float32), np.array(split.train.items)[: starts[-1]], starts), shape)
    kinds: dict[str, Any] = {"als": AlternatingLeastSquares, "bpr": BayesianPersonalizedRanking}
    factors = dim if method == "als" else dim - 1  # its BPR has a bias beside the factors
    with threadpool_limits(1, "blas"):  # it asks for this itself
        model = kinds[method](factors=factors, num_threads=1, random_state=seed, **options)
        model.fit(actions, show_progress=False)
    return torch.from_numpy(np.array(model.user_factors)), torch.from_numpy(np.array(model.item_factors))


EXPERIMENT = Experiment("losses", [run for way in WAYS for data in DATA for run in runs_of(data, way)], perform)


def section(lines: Sequence[Line]) -> str:
    """A table for each dataset: every way, its accuracy, and its time beside that of the softmax."""
    finished = Finished(lines)
    parts = [
        "Full tables of 32 dimensions, GMF: that of the fast recipe by each loss, and those of the library implicit, "
        "tuned on validation data. Seconds are of training on one core."
    ]
    for data in DATA:
        rows = [
            [way, *(finished.cell(own, metric) for metric in _SHOWN), finished.plain(own, "seconds")]
            for way in WAYS
            for own in [runs_of(data, way)]
        ]
        parts.append(table([f"**{name_of_data(data.settings())}**", *_SHOWN.values(), "seconds"], rows))
        parts.append(finished.measured_on([run for way in WAYS for run in runs_of(data, way)]))
    return paragraphs(parts)


if __name__ == "__main__":
    main(EXPERIMENT)
