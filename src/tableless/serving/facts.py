"""What is worth knowing about a trained run, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..embedding.storage import read_json
from ..recommender.answers import Side, TrainedRun
from .inference import Precision


def model_facts(run: TrainedRun, *, num_users: int | None, precision: Mapping[Side, Precision]) -> dict[str, Any]:
    """Sizes, what full tables for the same users and items would have cost, and what was measured after training.

    `num_users` is how many are known; where the run kept how many it was trained on, that counts. None: not known, and
    then `table_parameters` is not, either. `precision` is what each side is really computed in.
    """
    path = run.directory / "results.json"
    results = read_json(path) if path.exists() else {}
    users, items = results.get("num_users", num_users), len(run.listed("item"))
    dim = run.model.items.embedding_dim
    return {
        "scheme": run.config["model"]["items"]["scheme"],
        "backbone": run.config["model"]["backbone"],
        "embedding_dim": dim,
        "parameters": run.model.num_parameters,
        "embedding_parameters": run.model.embedding_parameters,
        "table_parameters": None if users is None else (users + items) * dim,
        "num_users": users,
        "num_items": items,
        "answers_new_ids": run.model.answers_new_ids,
        "precision": _in_words(precision),
        "results": results,
    }


def _in_words(precision: Mapping[Side, Precision]) -> str:
    """One word where both sides are alike."""
    if precision["user"] == precision["item"]:
        return precision["item"]
    return f"users {precision['user']}, items {precision['item']}"
