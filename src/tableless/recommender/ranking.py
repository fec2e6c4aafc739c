"""Ranking: where each held-out item stands among the items that its user never touched.

First a sample is drawn: whose held-out actions are measured, and against which items. It follows from the split alone,
so that every model is measured on the same. Then it is counted how many untouched items score above each held-out item,
and how many score the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..data.interactions import Rows
from ..data.splits import Split
from .scoring import Scorer

HeldOut = Literal["validation", "test"]
Counts = NDArray[np.int64]

FEWEST_USERS: dict[HeldOut, int] = {"validation": 5_000, "test": 10_000}
"""How many users are measured at least, where there are so many. With fewer, the spread over users is larger than the
differences between models."""
DRAWN_ITEMS = 400
"""Items that are drawn for each user, where all are too many. It adds far less to the spread than the users do."""

_BLOCK_PAIRS = 4_000_000
# Scores that were computed in batches of other shapes differ by rounding: those closer than this share are equal.
_ROUNDING = 1e-6
_FIRST_ITEMS = 1024  # of the most popular: they decide for most users whether the held-out item is among the first


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


def draw_sample(split: Split, *, on: HeldOut, max_pairs: float, known_only: bool = False, seed: int = 0) -> Sample:
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
        from ..kernels.pair_loops import sample_negatives

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


@dataclass(frozen=True)
class Outcome:
    """What became of each held-out item; the items of user i are those from starts[i] to starts[i + 1]."""

    starts: Counts  # [users + 1]
    auc: NDArray[np.float64]  # [actions] share of untouched items that score below, a tie counting half
    position: NDArray[np.float64]  # [actions] place in the ranking from 0, amid its ties on average; NaN: not counted

    @property
    def num_items(self) -> Counts:
        """How many held-out items each user has."""
        return np.diff(self.starts)

    def sum_by_user(self, values: NDArray[np.generic]) -> NDArray[np.float64]:
        """Sums over the held-out items of each user."""
        return np.add.reduceat(values.astype(np.float64), self.starts[:-1])

    def any_by_user(self, values: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether it is true of any held-out item of each user."""
        return np.logical_or.reduceat(values, self.starts[:-1])

    def with_places(self, position: NDArray[np.float64]) -> Outcome:
        """The same with another count of the places."""
        return replace(self, position=position)


def outcome_of(starts: Counts, above: Counts, equal: Counts, others: Counts, among: NDArray[np.float64]) -> Outcome:
    """From counts [actions]: of `others`, those that score above and equal; `among`, places lost to held-out items."""
    lost = above + equal / 2
    auc = np.where(others, 1 - lost / np.maximum(others, 1), 0.5)  # a half, where there is nothing to compare with
    return Outcome(starts, auc, lost + among)


def count_all(score: Scorer, sample: Sample) -> Outcome:
    """Against every untouched item."""
    from ..kernels.pair_loops import count_above_and_equal, lost_among

    above, equal = np.zeros((2, len(sample.items)), np.int64)
    among = np.zeros(len(sample.items))
    for users, actions in _blocks(sample, max(1, _BLOCK_PAIRS // sample.num_items)):
        scores = score(sample.users[users]).detach().cpu().contiguous().numpy()
        starts = sample.starts[users.start : users.stop + 1] - sample.starts[users.start]
        own = sample.items[actions]
        bars = scores[np.repeat(np.arange(len(scores)), np.diff(starts)), own]
        among[actions] = lost_among(bars, starts)
        touched = sample.touched_starts[users.start : users.stop + 1], sample.touched
        count_above_and_equal(scores[:, : sample.num_items], bars, starts, *touched, above[actions], equal[actions])
    return outcome_of(sample.starts, above, equal, _num_untouched(sample), among)


def count_drawn(score: Scorer, sample: Sample) -> Outcome:
    """Against the items drawn for each user. Places in a ranking can't be told from these."""
    assert sample.others is not None
    above, equal = np.zeros((2, len(sample.items)), np.int64)
    num_others = np.repeat((sample.others >= 0).sum(-1), np.diff(sample.starts))
    bars = _held_out_scores(score, sample)
    for users, actions in _blocks(sample, max(1, _BLOCK_PAIRS // sample.others.shape[1])):
        drawn = sample.others[users]
        scores = score(sample.users[users], np.maximum(drawn, 0)).detach().cpu().numpy()
        scores = np.where(drawn >= 0, scores, -np.inf)  # counts as below, and is not among the others
        user = np.repeat(np.arange(len(scores)), np.diff(sample.starts[users.start : users.stop + 1]))
        margin = _margin(bars[actions])[:, None]
        above[actions] = (scores[user] > bars[actions, None] + margin).sum(-1)
        equal[actions] = (np.abs(scores[user] - bars[actions, None]) <= margin).sum(-1)
    outcome = outcome_of(sample.starts, above, equal, num_others, np.zeros(len(above)))
    return outcome.with_places(np.full(len(above), np.nan))


def count_top(score: Scorer, sample: Sample, *, order: Rows, cutoff: int) -> NDArray[np.float64]:
    """The place of each held-out item among all items, exact where it is below `cutoff`; else just no less than that.

    Items are scored in `order`, some at a time. A user whose held-out items have all fallen behind the first `cutoff`
    is not scored any further: with popular items first that is most users, soon.
    """
    from ..kernels.pair_loops import add_lost, lost_among

    bars = _held_out_scores(score, sample)
    lost = lost_among(bars, sample.starts)
    place_of = np.empty(sample.num_items, np.int32)
    place_of[order] = np.arange(len(order), dtype=np.int32)
    active = np.arange(len(sample.users))
    first, width = 0, _FIRST_ITEMS
    while first < len(order) and len(active):
        items = order[first : first + width]
        for part in np.array_split(active, max(1, len(active) * len(items) // _BLOCK_PAIRS)):
            scores = score(sample.users[part], items).detach().cpu().contiguous().numpy()
            touched = sample.touched_starts, sample.touched
            add_lost(scores, first, part, bars, _margin(bars), sample.starts, *touched, place_of, lost)
        best = np.minimum.reduceat(lost, sample.starts[:-1])
        active = active[best[active] < cutoff]
        first, width = first + width, 4 * width
    return lost


def _blocks(sample: Sample, num_users: int) -> Iterator[tuple[slice, slice]]:
    """Users some at a time, and where their held-out actions stand."""
    for first in range(0, len(sample.users), num_users):
        users = slice(first, min(first + num_users, len(sample.users)))
        yield users, slice(int(sample.starts[users.start]), int(sample.starts[users.stop]))


def _num_untouched(sample: Sample) -> Counts:
    return np.repeat(sample.num_items - np.diff(sample.touched_starts), np.diff(sample.starts))


def _margin(bars: NDArray[np.float32]) -> NDArray[np.float32]:
    return (_ROUNDING * np.maximum(1, np.abs(bars))).astype(np.float32)


def _held_out_scores(score: Scorer, sample: Sample) -> NDArray[np.float32]:
    users, items = sample.user_of_action, sample.items[:, None]
    parts = [slice(first, first + _BLOCK_PAIRS // 64) for first in range(0, len(users), _BLOCK_PAIRS // 64)]
    return np.concatenate([score(users[part], items[part]).detach().cpu().numpy()[:, 0] for part in parts])
