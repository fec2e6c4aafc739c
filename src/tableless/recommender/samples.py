"""Samples: whose held-out actions are measured, and against which items. They follow from the split alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .negatives import sample_negatives
from .scoring import Rows
from .splits import Split

Part = Literal["validation", "test"]

FEWEST_USERS: dict[Part, int] = {"validation": 5_000, "test": 10_000}
"""How many users are measured at least, where there are so many: with fewer, the spread over users hides what models
differ by."""
DRAWN_ITEMS = 400
"""Items that are drawn for each user, where all are too many. What the draw adds to the spread over users is far below
what the users make themselves."""


@dataclass(frozen=True)
class Sample:
    """Users, their held-out items, what they have touched, and the items to take their AUC against."""

    users: Rows  # [n] distinct rows, ascending
    starts: NDArray[np.int64]  # [n + 1]: the held-out items of users[i] are items[starts[i]:starts[i + 1]]
    items: Rows
    touched_starts: NDArray[np.int64]  # [n + 1]: what users[i] has touched is touched[touched_starts[i]:…[i + 1]]
    touched: Rows  # sorted and distinct for each user; held-out items are among them
    others: Rows | None  # [n, m] untouched items drawn for each user (-1: there is none); None: all of them
    num_items: int  # items that are ranked: rows below this
    num_held_out: int  # users with a held-out action

    @property
    def user_of_action(self) -> Rows:
        """The user's row of each held-out item."""
        return np.repeat(self.users, np.diff(self.starts))


def draw_sample(split: Split, *, on: Part, max_pairs: float, known_only: bool = False, seed: int = 0) -> Sample:
    """All users with all items if these are at most `max_pairs`.

    Else as many users as `max_pairs` allow with all items. Where they allow less than `FEWEST_USERS`, so many are
    drawn, and `DRAWN_ITEMS` for each of them.
    """
    users, items = (split.test_users, split.test_items) if on == "test" else (
        split.validation_users, split.validation_items
    )  # fmt: skip
    num_held_out = len(np.unique(users))
    num_items = split.num_known_items if known_only else split.train.num_items
    if known_only:
        known = (users < split.num_known_users) & (items < split.num_known_items)
        users, items = users[known], items[known]
    if not len(users):
        raise ValueError(f"there is no held-out action to evaluate on in {on}; is every user new or too short?")
    order = np.argsort(users, kind="stable")
    users, items = users[order], items[order]
    distinct, firsts = np.unique(users, return_index=True)
    generator = np.random.default_rng(seed)
    count, num_drawn = _sizes(len(distinct), num_items, max_pairs, FEWEST_USERS[on])
    if count < len(distinct):
        chosen = np.sort(generator.choice(len(distinct), count, replace=False))
        mine = np.isin(users, distinct[chosen])
        users, items = users[mine], items[mine]
        distinct, firsts = np.unique(users, return_index=True)
    touched_starts, touched = _touched(split, distinct, num_items)
    others = None
    if num_drawn is not None:
        others = np.empty((len(distinct), num_drawn), np.int32)
        rows = np.arange(len(distinct), dtype=np.int32)
        sample_negatives(rows, touched_starts, touched, num_items, int(generator.integers(2**62)), others)
    starts = np.append(firsts, len(users)).astype(np.int64)
    return Sample(distinct, starts, items, touched_starts, touched, others, num_items, num_held_out)


def _sizes(num_users: int, num_items: int, max_pairs: float, fewest_users: int) -> tuple[int, int | None]:
    """How many users, and how many items for each; None for all items."""
    affordable = int(min(max_pairs / num_items, num_users))
    if affordable >= min(num_users, fewest_users):
        return affordable, None
    return min(num_users, fewest_users), DRAWN_ITEMS if num_items > DRAWN_ITEMS else None


def _touched(split: Split, users: Rows, num_items: int) -> tuple[NDArray[np.int64], Rows]:
    """The items of each user's training and held-out actions, below `num_items`: sorted, each once."""
    train = split.train
    lengths = np.diff(train.starts)[users]
    own = np.repeat(np.arange(len(users), dtype=np.int64), lengths)
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    items = train.items[np.repeat(train.starts[users], lengths) + within]
    pairs, keep = [own * num_items + items], [items < num_items]
    held_out = (split.validation_users, split.validation_items), (split.test_users, split.test_items)
    for some_users, some_items in held_out:
        place = np.minimum(np.searchsorted(users, some_users), len(users) - 1)
        pairs.append(place.astype(np.int64) * num_items + some_items)
        keep.append((users[place] == some_users) & (some_items < num_items))
    distinct = np.unique(np.concatenate(pairs)[np.concatenate(keep)])
    counts = np.bincount(distinct // num_items, minlength=len(users))
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), (distinct % num_items).astype(np.int32)
