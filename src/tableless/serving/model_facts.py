"""What is worth knowing about a trained model, as plain values, and which users it knows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..data.loading import NUM_EXAMPLES, example_users
from ..embedding.budget import BYTES_PER_PARAMETER
from ..embedding.ids import to_ids
from ..embedding.scheme import Precision
from ..recommender.features import SIDES, columns_of
from ..recommender.run_directory import Side, StoredRun
from .items import SeenItems, seen_config

_T = TypeVar("_T")


def model_facts(
    run: StoredRun,
    *,
    num_users: int | None,
    precision: Mapping[Side, Precision],
    example_users: Sequence[int | str] = (),
) -> dict[str, Any]:
    """Sizes, what full tables for the same users and items would have cost, and what was measured after training.

    `num_users` is how many users are known, or None; the number in the results of the training counts more. Without
    either, what depends on it is None as well. `bytes` are those of both schemes as they are stored, `table_bytes`
    those of tables in float32, without a map from ids to rows. `precision` is what each side is really computed in.
    `kinds` says what raw ids are, and `features` has the columns of each side, by which a new id can be added.
    `example_users` are a few raw ids of known users; as text, since JavaScript would round large integers.
    """
    results = run.results
    users, items = results.get("num_users", num_users), len(run.listed("item"))
    dim = run.model.items.embedding_dim
    sizes = run.model.sizes(None if users is None else users + items)
    table = None if users is None else (users + items) * dim
    return {
        "scheme": run.config["model"]["items"]["scheme"],
        "backbone": run.config["model"]["backbone"],
        "embedding_dim": dim,
        "bytes": sizes["bytes"],
        "bytes_per_id": sizes["bytes_per_id"],
        "bytes_by_part": sizes["bytes_by_part"],
        "table_bytes": None if table is None else table * BYTES_PER_PARAMETER,
        "parameters": sizes["num_parameters"],
        "embedding_parameters": sizes["embedding_parameters"],
        "table_parameters": table,
        "num_users": users,
        "num_items": items,
        "answers_new_ids": run.model.answers_new_ids,
        "kinds": run.config["kinds"],
        "features": _features_of(run.config),
        "precision": _in_words(precision),
        "example_users": [str(user) for user in example_users],
        "results": results,
    }


def _features_of(config: Mapping[str, Any]) -> dict[str, list[dict[str, str]]]:
    """The name and the kind of each column, for each side that has features."""
    sides = config.get("features") or {}
    return {
        side: [{"name": own.name, "kind": own.kind} for own in columns_of(config, side).columns]
        for side in SIDES
        if side in sides
    }


def _in_words(precision: Mapping[Side, Precision]) -> str:
    """One word where both sides are alike."""
    if precision["user"] == precision["item"]:
        return precision["item"]
    return f"users {precision['user']}, items {precision['item']}"


class Answers(list[_T]):
    """A list of answers, best first. `known` says whether the id that was asked about is known to the model.

    It is None where the run does not list its users, so that nobody can tell.
    """

    def __init__(self, answers: Iterable[_T], *, known: bool | None) -> None:
        super().__init__(answers)
        self.known = known


def listed_users(run: StoredRun, seen: SeenItems | None) -> Tensor | None:
    """The ids of all known users: those that the run lists, else those of the interactions, and those that were added.

    None: nobody can tell.
    """
    known = to_ids(run.listed("user")["id"]) if run.model.users.lists_ids else seen.user_ids if seen else None
    added = [row["id"] for row in run.files.added["user"].read()]
    if known is None or not added:
        return known
    ids = torch.unique(to_ids(added))
    return torch.cat([known, ids[~torch.isin(ids, known)]])


def users_to_offer(
    run: StoredRun, seen: SeenItems | None, users: Tensor | None, *, interactions: str | os.PathLike[str] | None
) -> list[int | str]:
    """A few users for the page: those that training has left, or else of the interactions, or of the known `users`.

    None at all where training was told to leave none (`--no-example-users`).
    """
    kept = run.files.read_example_users()
    if kept is None:
        return []
    if not kept and interactions is not None and seen is not None:
        kept = example_users(seen_config(interactions, run.config), seen.interactions)
    if not kept and users is not None and run.config["kinds"]["user"] == "integer":
        kept = [*users[:NUM_EXAMPLES].tolist()]
    return kept
