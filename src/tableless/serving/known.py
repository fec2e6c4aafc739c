"""Known or new: which users a model knows, and what an answer says about the id that was asked about."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

from torch import Tensor

from ..data.example_users import NUM_EXAMPLES, example_users
from ..embedding.ids import to_ids
from ..recommender.run_directory import StoredRun
from .items import SeenItems, seen_config

_T = TypeVar("_T")


class Answers(list[_T]):
    """A list of answers, best first. `known` says whether the id that was asked about is known to the model.

    It is None where the run does not list its users, so that nobody can tell.
    """

    def __init__(self, answers: Iterable[_T], *, known: bool | None) -> None:
        super().__init__(answers)
        self.known = known


def listed_users(run: StoredRun, seen: SeenItems | None) -> Tensor | None:
    """The ids of all known users: those that the run lists, else those of the interactions. None: nobody can tell."""
    if not run.model.users.open_vocabulary:
        return to_ids(run.listed("user")["id"])
    return seen.user_ids if seen else None


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
