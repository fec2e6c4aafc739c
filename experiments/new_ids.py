"""New ids: what the schemes say of users and films that came after training, all by the fast recipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tableless.data.config import DataConfig
from tableless.data.splits import Split
from tableless.embedding.deep_hash import DeepHashEmbedding
from tableless.embedding.tables import HybridHashing
from tableless.files.whole import Line
from tableless.recommender.models import GMF, Recommender
from tableless.recommender.runs import ModelConfig, build_model

from .finished import SHOWN, Finished
from .genres import genres_of
from .running import Experiment, Settings, main
from .training_runs import perform_on, settings, split_of
from .writing import paragraphs, table

SEEDS = range(3)
# MovieLens-1M would have two new films in its test period; here there are 794, and 1,415 new users, of 4,741 actions.
TWEETS = DataConfig("movietweetings", split="global-time")
SHARED_ROW, WITH_GENRES = "full, one row for all new ids", "dhe with genres in the encoding"
SCHEMES_AT_A_QUARTER: dict[str, dict[str, Any]] = {
    "dhe": {},
    "hashing-trick": {},
    "bloom": {},
    "hybrid": {},
    "hash-embedding": {"weights": "hashed"},
    "head-and-tail": {},
}
WAYS = [SHARED_ROW, *SCHEMES_AT_A_QUARTER, WITH_GENRES]
# Ids as rare as this share the row of the new ids in training too: else nobody would have trained it.
_RARE = 1


def perform(settings: Settings) -> dict[str, Any]:
    """Train on what came first, measure on what came last."""
    data = DataConfig(**settings["data"])
    split = split_of(data)
    model = _model(settings, split, data.data, settings["train"]["seed"])
    return perform_on(split, settings, model)


def _model(settings: Settings, split: Split, data: str, seed: int) -> Recommender:
    config = ModelConfig(**settings["model"])
    if settings["way"] == SHARED_ROW:
        train = split.train
        user_counts = np.diff(train.starts)
        item_counts = np.bincount(train.items, minlength=train.num_items)
        users = _with_shared_row(train.user_ids, user_counts, config.embedding_dim, 2 * seed)
        items = _with_shared_row(train.item_ids, item_counts, config.embedding_dim, 2 * seed + 1)
        return GMF(users=users, items=items, seed=seed)
    plain = build_model(config, split, seed=seed)
    if settings["way"] != WITH_GENRES:
        return plain
    items_with_genres = DeepHashEmbedding.from_budget(
        config.budget,
        embedding_dim=config.embedding_dim,
        vocab_size=split.num_known_items,
        seed=2 * seed + 1,
        side_features=genres_of(data, split.train),
    )
    return GMF(users=plain.users, items=items_with_genres, seed=seed)


def _with_shared_row(
    ids: np.ndarray[Any, np.dtype[np.int64]], counts: np.ndarray[Any, np.dtype[np.int64]], dim: int, seed: int
) -> HybridHashing:
    """A table with a row for each id that is not rare, and one for all others: hybrid hashing with one bucket."""
    frequent = torch.from_numpy(ids[counts > _RARE])
    scheme = HybridHashing(dim, num_frequent=len(frequent), num_rows=1, num_hashes=1, seed=seed)
    scheme.frequent.assign(frequent)
    return scheme


def _runs(way: str) -> list[Settings]:
    scheme = way if way in SCHEMES_AT_A_QUARTER else "dhe"
    options = SCHEMES_AT_A_QUARTER.get(way, {})
    return [settings(TWEETS, scheme, "1/4", seed, recipe="fast", options=options) | {"way": way} for seed in SEEDS]


EXPERIMENT = Experiment("new_ids", [run for way in WAYS for run in _runs(way)], perform)


def section(lines: Sequence[Line]) -> str:
    """Accuracy over all actions of the last tenth, and AUC over those with somebody or something new."""
    finished = Finished(lines)
    groups = {"new users: AUC, %": "auc_by_group.new users", "new items: AUC, %": "auc_by_group.new items"}
    metrics = {f"all: {label}": name for name, label in SHOWN.items()} | groups
    popularity = finished.plain(_runs("dhe")[:1], "popularity_auc", scale=100, digits=2)
    rows = [[way, *(finished.cell(_runs(way), metric) for metric in metrics.values())] for way in WAYS]
    return paragraphs(
        [
            "Not in the paper, which says only that DHE has a vector for any id. MovieTweetings, split by time; the "
            "films compared with are all films, the new ones included. Everything but the full table has 1/4 of its "
            "size. A scheme that knows nothing of an id but its hash can't tell a good new film from a bad one; one "
            "that sees genres may. AUCs of new items spread widely between seeds, because few films make up most of "
            "the actions: of 794 actions with new films 219 are with one film. Each seed gives that film another "
            "random vector. The experiment cold_start holds out films by lot, others for each seed.",
            table(["", *metrics], [*rows, ["popularity", popularity, "", "", ""]]),
            finished.measured_on(EXPERIMENT.runs),
        ]
    )


if __name__ == "__main__":
    main(EXPERIMENT)
