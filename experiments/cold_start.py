"""Cold start: whole items and users are held out, and models answer for them by what is known of them.

A tenth of the items and a tenth of the users have no action in training. Test actions with new items are those of known
users, test actions of new users are those with known items. Every seed holds out others.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from tableless.data.config import DataConfig, FeatureConfig
from tableless.data.interactions import Part
from tableless.data.loading import find_data, load_interactions
from tableless.data.splits import Split, split_given
from tableless.data.world import World
from tableless.embedding.described_ids import WithDescribedIds
from tableless.files.whole import Line
from tableless.recommender.features import Features, load_features
from tableless.recommender.models import Recommender
from tableless.recommender.runs import ModelConfig, build_model, train_and_measure
from tableless.recommender.training import TrainConfig

from .finished import Finished
from .running import Experiment, Settings, main
from .training_runs import BOOKS, MOVIELENS, TWEETED_FILMS, kept_teacher, name_of_data, split_of
from .writing import paragraphs, table

SEEDS = range(3)
COLD: dict[str, DataConfig] = {name_of_data(asdict(data)): data for data in (MOVIELENS, TWEETED_FILMS, BOOKS)}
WITH, WITHOUT = "with features", "ids alone"
MODELS = {  # a scheme, a budget, and what it is told
    "dhe, features in the encoding": ("dhe", "1/16", "encoding"),
    "dhe, ids alone": ("dhe", "1/16", None),
    "full, features for new ids": ("full", "1/1", "new-ids"),
}
FEATURES, MEAN_ROW, RARE_ROW, AS_IT_IS = "its features", "the mean row", "the mean of rare rows", "its hashes alone"
POPULARITY, CONTENT = "popularity of its features", "content alone"
_HELD_OUT, _OTHERS, _MOST_USERS, _RARE, _AT = 0.1, 0.02, 3000, 5, 10

Scores = Callable[[NDArray[np.int64]], NDArray[np.float32]]


def perform(settings: Settings) -> dict[str, Any]:
    """Train once; warm runs are measured as always, cold ones by every way to answer for a new id."""
    data, model = DataConfig(**settings["data"]), ModelConfig(**settings["model"])
    training = TrainConfig(seed=settings["seed"])
    is_cold = settings["split"] == "cold"
    split = _cold_split(data, settings["seed"]) if is_cold else split_of(data)
    files = _feature_files(data)
    told = settings["features"]
    features = load_features(FeatureConfig(*files, told), split) if told else Features()
    example = build_model(model, split, seed=training.seed, features=features)
    trained, results = train_and_measure(
        data,
        model,
        training,
        split,
        features=features,
        teacher=kept_teacher(example, replace(data, split_seed=settings["seed"] + 100 * is_cold), split, training),
    )
    if not is_cold:
        kept = ("auc", "ndcg@10", "auc_se", "validation_auc", "bytes", "bytes_per_id", "bytes_by_part", "stages")
        return {name: results[name] for name in (*kept, "epochs", "capped", "evaluated", "held_out", "popularity_auc")}
    known = load_features(FeatureConfig(*files), split)
    return {
        "new items": _new_items(trained, split, known, is_told=told is not None),
        "new users": _new_users(trained, split, is_told=told is not None and "user" in known.tables),
        "bytes": results["bytes"],
        "known": results["known"]["auc"] if "known" in results else None,
        "stages": results["stages"],
        "epochs": results["epochs"],
        "capped": results["capped"],
    }


def _cold_split(data: DataConfig, seed: int) -> Split:
    """Actions with a tenth of the items, and those of a tenth of the users, are for the test; of the others a few."""
    whole = load_interactions(data.data, core=data.core)
    random = np.random.default_rng(seed)
    new_item = random.random(whole.num_items) < _HELD_OUT
    users = whole.user_rows()
    is_test = new_item[whole.items] | (random.random(whole.num_users) < _HELD_OUT)[users]
    is_test |= random.random(whole.num_actions) < _OTHERS
    part = np.where(is_test, Part.TEST, Part.TRAIN).astype(np.int64)
    order = np.lexsort((part, users))  # a user's actions stand in the order of their parts
    return split_given(replace(whole, items=whole.items[order], times=part[order]), seed=seed)


@functools.lru_cache(maxsize=4)
def _feature_files(data: DataConfig) -> tuple[str | None, str | None]:
    """Files of item and user features: the columns that say something, and the year that is part of a film's title."""
    folder = Path(tempfile.mkdtemp(prefix="cold-start-"))
    if World.parse(data.data) is not None:
        items = np.unique(load_interactions(data.data).item_ids)
        frame = pl.DataFrame({"item_id": items, "genres": [f"tens {item % 10}|fifths {item % 5}" for item in items]})
        frame.write_parquet(folder / "items.parquet")
        return str(folder / "items.parquet"), None
    path = find_data(data.data)[0]
    of_items, of_users = (
        path.with_name(path.name.replace(".parquet", f"-{side}.parquet")) for side in ("items", "users")
    )
    if data.data == "bookcrossing":
        return f"{of_items}:author=category,publisher=category,year=number", f"{of_users}:location=tags,age=number"
    films = pl.read_parquet(of_items)
    years = [re.search(r"\((\d{4})\)\s*$", title or "") for title in films["title"]]
    films = films.with_columns(pl.Series("year", [int(year.group(1)) if year else None for year in years]))
    films.select("item_id", "genres", "year").write_parquet(folder / "items.parquet")
    return str(folder / "items.parquet"), f"{of_users}:gender,age,occupation" if of_users.exists() else None


@torch.no_grad()
def _new_items(model: Recommender, split: Split, known: Features, *, is_told: bool) -> dict[str, Any]:
    """Every way to answer for new items, on the actions of known users with them."""
    train, count = split.train, split.num_known_items
    ids = torch.from_numpy(np.array(train.item_ids))
    own = model.items.inner if isinstance(model.items, WithDescribedIds) else model.items
    inputs = ids if own.open_vocabulary else torch.arange(count)
    trained = own(inputs[:count])
    frequency = np.bincount(train.items, minlength=train.num_items)[:count]
    rare = torch.from_numpy(frequency <= max(_RARE, np.quantile(frequency, 0.05)))
    others = {MEAN_ROW: trained.mean(0), RARE_ROW: trained[rare].mean(0)}
    if own.open_vocabulary:
        others[AS_IT_IS] = own(ids[count:])
    if is_told:
        others[FEATURES] = model.items(ids[count:])
    users = model.prepare_users(model.users(_user_inputs(model, split)))

    def by_vectors(new: Tensor) -> Scores:
        vectors = torch.cat([trained, new.expand(train.num_items - count, -1)])
        prepared = model.prepare_items(vectors)
        return lambda rows: model.score_all(users[torch.from_numpy(rows)], prepared).numpy()

    measured = {way: _measure_items(by_vectors(new), split) for way, new in others.items()}
    there, rows = known.tables["item"].of(train.item_ids)
    features = np.zeros((train.num_items, rows.shape[1]), np.float32)
    features[there] = rows
    counts = np.concatenate([np.log1p(frequency), _popularity_of(features, frequency, count)])
    measured[POPULARITY] = _measure_items(lambda rows: np.tile(counts.astype(np.float32), (len(rows), 1)), split)
    measured[CONTENT] = _measure_items(_by_content(features, split), split)
    return measured


def _popularity_of(features: NDArray[np.float32], frequency: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """How often new items are likely to be chosen, by their features: a ridge regression of the logarithm."""
    columns = np.concatenate([features, np.ones((len(features), 1), np.float32)], axis=1).astype(np.float64)
    squares = columns[:count].T @ columns[:count] + 10 * np.eye(columns.shape[1])
    solution = np.linalg.solve(squares, columns[:count].T @ np.log1p(frequency))
    return columns[count:] @ solution


def _by_content(features: NDArray[np.float32], split: Split) -> Scores:
    """The cosine of an item's features and the mean features of what a user has chosen, both around the mean."""
    train, centred = split.train, features - features.mean(0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True).clip(1e-6)
    sums = np.zeros((train.num_users, centred.shape[1]), np.float32)
    np.add.at(sums, train.user_rows(), centred[train.items])
    return lambda rows: sums[rows] @ centred.T


@torch.no_grad()
def _new_users(model: Recommender, split: Split, *, is_told: bool) -> dict[str, Any]:
    """Every way to answer for new users, on their actions with known items."""
    train, count = split.train, split.num_known_users
    own = model.users.inner if isinstance(model.users, WithDescribedIds) else model.users
    ids = torch.from_numpy(np.array(train.user_ids))
    trained = own((ids if own.open_vocabulary else torch.arange(count))[:count])
    known_items = torch.from_numpy(np.array(train.item_ids))[: split.num_known_items]
    items = model.prepare_items(
        model.items(known_items if model.items.open_vocabulary else torch.arange(len(known_items)))
    )
    others: dict[str, Tensor] = {MEAN_ROW: trained.mean(0)}
    if own.open_vocabulary:
        others[AS_IT_IS] = own(ids[count:])
    if is_told:
        others[FEATURES] = model.users(ids[count:])

    def by_vectors(new: Tensor) -> Scores:
        prepared = model.prepare_users(new.expand(train.num_users - count, -1))
        return lambda rows: model.score_all(prepared[torch.from_numpy(rows - count)], items).numpy()

    popularity = np.bincount(train.items, minlength=train.num_items)[: split.num_known_items].astype(np.float32)
    ways = {way: by_vectors(new) for way, new in others.items()}
    ways["popularity"] = lambda rows: np.tile(popularity, (len(rows), 1))
    mask = (split.test_users >= count) & (split.test_items < split.num_known_items)
    users, chosen = split.test_users[mask], split.test_items[mask]
    every = np.ones(split.num_known_items, np.bool_)
    return {way: _measure(scores, users, chosen, {"all": every}, split) for way, scores in ways.items()}


def _user_inputs(model: Recommender, split: Split) -> Tensor:
    known = np.array(split.train.user_ids[: split.num_known_users])
    return torch.from_numpy(known) if model.users.open_vocabulary else torch.arange(len(known))


def _measure_items(scores: Scores, split: Split) -> dict[str, float]:
    mask = (split.test_users < split.num_known_users) & (split.test_items >= split.num_known_items)
    is_new = np.arange(split.train.num_items) >= split.num_known_items
    among = {"all": np.ones(len(is_new), np.bool_), "new": is_new}
    return _measure(scores, split.test_users[mask], split.test_items[mask], among, split)


def _measure(
    scores: Scores,
    users: NDArray[np.int32],
    items: NDArray[np.int32],
    among: Mapping[str, NDArray[np.bool_]],
    split: Split,
) -> dict[str, float]:
    """AUC and NDCG@10 of held-out actions among sets of items, without those that the user has in training."""
    train, order = split.train, np.argsort(users, kind="stable")
    users, items = users[order], items[order]
    drawn = np.unique(users)
    if len(drawn) > _MOST_USERS:
        drawn = np.sort(np.random.default_rng(0).choice(drawn, _MOST_USERS, replace=False))
    found: dict[str, list[float]] = {f"{metric} {name}": [] for name in among for metric in ("auc", "ndcg@10")}
    discount = 1 / np.log2(np.arange(_AT) + 2)
    for first in range(0, len(drawn), 256):
        some = drawn[first : first + 256].astype(np.int64)
        for user, own_scores in zip(some.tolist(), scores(some), strict=True):
            own = items[np.searchsorted(users, user) : np.searchsorted(users, user, side="right")]
            touched = train.items[train.starts[user] : train.starts[user + 1]]
            touched = np.append(touched, split.validation_items[split.validation_users == user])
            for name, members in among.items():
                ranked = members.copy()
                ranked[touched] = False
                rivals = ranked.copy()
                rivals[own] = False
                others, mine = np.sort(own_scores[rivals]), own_scores[own]
                below = np.searchsorted(others, mine) + np.searchsorted(others, mine, side="right")
                found[f"auc {name}"].append(float((below / (2 * max(1, len(others)))).mean()))
                candidates = np.flatnonzero(ranked)
                # Equal scores in an order that says nothing: by a hash of the row, the same for every way.
                ties = (candidates * 2654435761) % 2**32
                best = candidates[np.lexsort((ties, -own_scores[candidates]))[:_AT]]
                gain = (np.isin(best, own) * discount[: len(best)]).sum() / discount[: min(_AT, len(own))].sum()
                found[f"ndcg@10 {name}"].append(float(gain))
    return {name: float(np.mean(values)) for name, values in found.items()} | {
        "users": float(len(drawn)),
        "actions": float(len(users)),
    }


def run_of(data: DataConfig, model: str, seed: int, *, split: str = "cold") -> Settings:
    """One model of one seed, as plain values."""
    scheme, budget, told = MODELS[model]
    described = {"scheme": scheme, "budget": budget}
    return {"data": data.settings(), "split": split, "model": described, "features": told, "seed": seed}


WARM = ("dhe, features in the encoding", "dhe, ids alone")
EXPERIMENT = Experiment(
    "cold_start",
    [
        *(run_of(MOVIELENS, model, seed, split="warm") for model in WARM for seed in SEEDS),
        *(run_of(data, model, seed) for data in COLD.values() for model in MODELS for seed in SEEDS),
    ],
    perform,
)

_COLUMNS = {"AUC among all, %": "auc all", "NDCG@10 among all, %": "ndcg@10 all"}
_NEW_COLUMNS = {"AUC among new, %": "auc new", "NDCG@10 among new, %": "ndcg@10 new"}


def section(lines: Sequence[Line]) -> str:
    """New items, new users, and known ones with and without features."""
    finished = Finished(lines)
    parts = [
        "Section 3.4 of the paper, measured. A tenth of the items and of the users have no action in training, others "
        "for each seed. A new id gets its vector from its features, by a linear map that is fitted to the vectors of "
        "the known ids. Popularity and content alone use the same features. Budgets: 1/16 of the table's bytes for the "
        "weights; features are data of the caller and come on top."
    ]
    for name, data in COLD.items():
        for side, columns in (("new items", _COLUMNS | _NEW_COLUMNS), ("new users", _COLUMNS)):
            rows = []
            for model in MODELS:
                runs = [run_of(data, model, seed) for seed in SEEDS]
                rows += [
                    [model, way, *(finished.cell(runs, f"{side}.{way}.{own}") for own in columns.values())]
                    for way in _ways(finished, runs, side)
                ]
            if rows:
                parts.append(table([f"{name}: {side}", "by", *columns], rows))
    parts.append(_warm(finished))
    return paragraphs(parts)


def _ways(finished: Finished, runs: Sequence[Settings], side: str) -> list[str]:
    lines = [line for run in runs if (line := finished.line(run))]
    return list(lines[0].get("results", {}).get(side, {})) if lines else []


def _warm(finished: Finished) -> str:
    rows = []
    runs = {model: [run_of(MOVIELENS, model, seed, split="warm") for seed in SEEDS] for model in WARM}
    for model, own in runs.items():
        rows.append([model, finished.cell(own), finished.cell(own, "ndcg@10"), finished.plain(own, "bytes")])
    with_features, without = runs.values()
    gain = [str(finished.difference(with_features, without, metric) or "") for metric in ("auc", "ndcg@10")]
    rows.append(["gain", *gain, ""])
    return table(["ML-1M, known ids", "AUC, %", "NDCG@10, %", "bytes with features"], rows)


if __name__ == "__main__":
    main(EXPERIMENT)
