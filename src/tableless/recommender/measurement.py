"""Measuring a run again: on its own data, on other data, on given test actions, or against given negatives."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.config import DataConfig, RowRules, recorded_data
from ..data.interactions import Interactions, Rows
from ..data.loading import load_split
from ..data.sources import DATASETS
from ..data.splits import Split
from ..data.world import World
from ..embedding.ids import to_ids
from .evaluation import means_and_errors, measure_on_sample, measure_scorer, popularity_warning
from .models import Recommender
from .ranking import Outcome, draw_sample, outcome_of
from .run_directory import Side, StoredRun
from .scoring import Scorer, by_rows, model_scores, popularity_scores

EXACT_SECONDS = 20
"""Where an evaluation over all users and items would take longer than about this, a sample is drawn (ranking.py)."""


def measure(model: Recommender, split: Split) -> dict[str, Any]:
    """Test results of a model, as plain values.

    Where the data has new ids and the model answers for them, `known` has the results on the ids of training alone,
    which can be compared with those of a model that knows no others.
    """
    score, settings = model_scores(model, split), _settings(model)
    test = measure_scorer(score, split, on="test", **settings)
    validation = measure_scorer(score, split, on="validation", **settings)
    results = test.as_dict() | {
        "validation": validation.as_dict(),
        "validation_auc": validation.auc,
        "auc_by_group": test.groups,
        "unanswered": _count_unanswerable(split) if not model.answers_new_ids else 0,
        **model.sizes(split.num_known_users + split.num_known_items),
    }
    if model.answers_new_ids and 0 < _count_unanswerable(split) < len(split.test_users):
        results["known"] = measure_scorer(score, split, **settings | {"known_only": True}).as_dict()
    return results


def measure_floor(data: DataConfig, model: Recommender, split: Split) -> dict[str, Any]:
    """The floor, which every dataset has, and the ceiling, which only the synthetic world knows.

    Both on the users and items that the model is measured on.
    """
    sample = draw_sample(split, on="test", **_settings(model))
    floor = measure_on_sample(sample, popularity_scores(split.train), split)
    results: dict[str, Any] = {"popularity": floor.as_dict(), "popularity_auc": floor.auc}
    world = World.parse(data.data)
    if world is not None and data.core == 0 and data.split == "leave-one-out":
        best = measure_on_sample(sample, by_rows(lambda users: torch.from_numpy(world.scores(users)).float()), split)
        results |= {"best_possible": best.as_dict(), "best_possible_auc": best.auc}
    return results


def _settings(model: Recommender) -> dict[str, Any]:
    """How far a model of this kind is measured: the same for all its schemes."""
    return {"max_pairs": EXACT_SECONDS * model.pairs_per_second, "known_only": not model.answers_new_ids}


def _count_unanswerable(split: Split) -> int:
    new = (split.test_users >= split.num_known_users) | (split.test_items >= split.num_known_items)
    return int(new.sum())


def measure_run(
    run: StoredRun,
    *,
    data: str | None = None,
    test: str | None = None,
    data_dir: Path | None = None,
    user_col: str | None = None,
    item_col: str | None = None,
    time_col: str | None = None,
    rules: RowRules = RowRules(),  # noqa: B008 - frozen
    negatives: Path | None = None,
) -> dict[str, Any]:
    """The results of a trained run on the data it was trained on, or on `data` split in the same way.

    With `test`, a file, the test actions are those of the file, and all actions of the data are left out of the
    ranking. Columns and `rules` that are not given are those of the training. A run may come from a stranger, so no
    path is opened only because the run names it: `data` is needed unless the run was trained on a known dataset or a
    world.
    """
    recorded = recorded_data(run.config)
    _require_named_paths(run, recorded, data=data, test=test)
    config = replace(
        recorded,
        data=data or recorded.data,
        test=test,
        split=recorded.split if test is None else "leave-one-out",
        data_dir=str(data_dir) if data_dir else None,
        user_col=user_col or recorded.user_col,
        item_col=item_col or recorded.item_col,
        time_col=recorded.time_col if time_col is None else time_col,
        **rules.given(),
    )
    split = load_split(config)
    require_same_kinds(run.config, split.train, config.data)
    _require_same_rows(run, split)
    if negatives is not None:
        return _measure_given(run, split, negatives)
    results = measure(run.model, split) | measure_floor(config, run.model, split)
    warning = popularity_warning(
        results | {"capped": run.results.get("capped", False)},  # training says so, and not what is measured here
        training=run.config.get("train", {}),
        scheme=run.config["model"]["items"]["scheme"],
        num_actions=split.train.num_actions,
    )
    results |= {"warning": warning} if warning else {}
    if test is None:
        return results
    # The validation actions were drawn from all of the data, and the run may have been trained on them.
    return {name: value for name, value in results.items() if not name.startswith("validation")}


def _require_named_paths(run: StoredRun, recorded: DataConfig, *, data: str | None, test: str | None) -> None:
    is_path = recorded.data.lower() not in DATASETS and World.parse(recorded.data) is None
    if (data is not None or not is_path) and (test is not None or recorded.test is None):
        return
    command = ["tableless", "evaluate", str(run.files.path), "--data", data or recorded.data]
    if test or recorded.test:
        command += ["--test", str(test or recorded.test)]
    shown = shlex.join(command)
    raise ValueError(
        "this run was trained on files, and a file is opened only if you name it yourself: with data= and test= in "
        "Python, or "
        f"{shown if shown.isprintable() else ascii(shown)}"
    )


def require_same_kinds(config: Mapping[str, Any], interactions: Interactions, source: str) -> None:
    """Refuse data whose ids are of another kind (integers, strings) than those that a run was trained on."""
    for side, kind in (("user", interactions.user_kind), ("item", interactions.item_kind)):
        if kind != config["kinds"][side]:
            raise ValueError(
                f"{side} ids are {kind}s in {source}, and {config['kinds'][side]}s in the data that the run was "
                "trained on; they would never match"
            )


def _require_same_rows(run: StoredRun, split: Split) -> None:
    """A closed scheme's rows mean the users and items of its own training data and no others."""
    train, model = split.train, run.model
    sides: list[tuple[Side, bool, Any]] = [
        ("user", model.users.open_vocabulary, train.user_ids[: split.num_known_users]),
        ("item", model.items.open_vocabulary, train.item_ids[: split.num_known_items]),
    ]
    for side, is_open, ids in sides:
        if not is_open and not np.array_equal(run.listed(side)["id"].to_numpy(), ids):
            raise ValueError(
                f"this run has a table with a row for each {side} of its own training data, and these are other "
                f"{side}s; only a scheme that is open to new ids, such as dhe, can be measured on other data"
            )


def _measure_given(run: StoredRun, split: Split, path: Path) -> dict[str, Any]:
    users, items, others = _read_negatives(run, split.train, path)
    measured = means_and_errors(given_negatives(model_scores(run.model, split), users, items, others))
    errors = {f"{name}_se": value for name, value in measured["errors"].items()}
    return measured["means"] | errors | {"evaluated": len(users), "held_out": len(users)}


def given_negatives(score: Scorer, users: Rows, items: Rows, negatives: Sequence[Rows]) -> Outcome:
    """NCF's protocol: each held-out item against a list of negatives that came with the data."""
    above, equal = np.zeros((2, len(users)), np.int64)
    for row, others in enumerate(negatives):
        scores = score(users[row : row + 1], np.concatenate([items[row : row + 1], others]))[0].detach().cpu().numpy()
        above[row], equal[row] = (scores[1:] > scores[0]).sum(), (scores[1:] == scores[0]).sum()
    counts = np.array([len(others) for others in negatives])
    return outcome_of(np.arange(len(users) + 1), above, equal, counts, np.zeros(len(users)))


def _read_negatives(
    run: StoredRun, interactions: Interactions, path: Path
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], list[np.ndarray[Any, Any]]]:
    users, items, negatives = [], [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        pair, *others = line.rstrip().split("\t")
        match = re.fullmatch(r"\(\s*(.+?)\s*,\s*(.+?)\s*\)", pair)
        if match is None or not others:
            raise ValueError(f"{path}, line {number}: expected (user,item), then negatives, separated by tabs")
        users.append(_row(run, "user", match[1], interactions.user_ids, path, number))
        items.append(_row(run, "item", match[2], interactions.item_ids, path, number))
        rows = [_row(run, "item", other, interactions.item_ids, path, number) for other in others]
        negatives.append(np.array(rows, np.int32))
    if not users:
        raise ValueError(f"{path} is empty")
    return np.array(users, np.int32), np.array(items, np.int32), negatives


def _row(run: StoredRun, side: Any, text: str, ids: np.ndarray[Any, Any], path: Path, line: int) -> int:
    wanted = int(to_ids(run.parse(side, text)))
    found = np.flatnonzero(ids == wanted)
    if not len(found):
        raise ValueError(f"{path}, line {line}: {side} {text} is not in the interactions")
    return int(found[0])
