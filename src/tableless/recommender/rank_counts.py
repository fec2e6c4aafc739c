"""Counting: how many untouched items score above each held-out item, and how many score the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..embedding.compiling import compiled
from .samples import Sample
from .scoring import Rows, Scorer

Counts = NDArray[np.int64]

_BLOCK_PAIRS = 4_000_000
# Scores that were computed in batches of other shapes differ by rounding: those closer than this share are equal.
_ROUNDING = 1e-6
_FIRST_ITEMS = 1024  # of the most popular: they decide for most users whether the held-out item is among the first


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
    above, equal = np.zeros((2, len(sample.items)), np.int64)
    among = np.zeros(len(sample.items))
    for users, actions in _blocks(sample, max(1, _BLOCK_PAIRS // sample.num_items)):
        scores = score(sample.users[users]).detach().cpu().contiguous().numpy()
        starts = sample.starts[users.start : users.stop + 1] - sample.starts[users.start]
        own = sample.items[actions]
        bars = scores[np.repeat(np.arange(len(scores)), np.diff(starts)), own]
        among[actions] = _lost_among(bars, starts)
        touched = sample.touched_starts[users.start : users.stop + 1], sample.touched
        _count(scores[:, : sample.num_items], bars, starts, *touched, above[actions], equal[actions])
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
    bars = _held_out_scores(score, sample)
    lost = _lost_among(bars, sample.starts)
    place_of = np.empty(sample.num_items, np.int32)
    place_of[order] = np.arange(len(order), dtype=np.int32)
    active = np.arange(len(sample.users))
    first, width = 0, _FIRST_ITEMS
    while first < len(order) and len(active):
        items = order[first : first + width]
        for part in np.array_split(active, max(1, len(active) * len(items) // _BLOCK_PAIRS)):
            scores = score(sample.users[part], items).detach().cpu().contiguous().numpy()
            touched = sample.touched_starts, sample.touched
            _add_lost(scores, first, part, bars, _margin(bars), sample.starts, *touched, place_of, lost)
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


@compiled()
def _lost_among(bars: NDArray[np.float32], starts: Counts) -> NDArray[np.float64]:
    """Places that each held-out item loses to other held-out items of its user, a tie counting half."""
    lost = np.zeros(len(bars))
    for user in range(len(starts) - 1):
        for action in range(starts[user], starts[user + 1]):
            for other in range(starts[user], starts[user + 1]):
                if bars[other] > bars[action]:
                    lost[action] += 1.0
                elif bars[other] == bars[action] and other != action:
                    lost[action] += 0.5
    return lost


@compiled()
def _count(
    scores: NDArray[np.float32],
    bars: NDArray[np.float32],
    starts: Counts,
    touched_starts: Counts,
    touched: Rows,
    above: Counts,
    equal: Counts,
) -> None:
    """Compare the bars of each row with all of the row, then take back what the user has touched."""
    for row in range(len(scores)):
        for action in range(starts[row], starts[row + 1]):
            bar = bars[action]
            higher, same = 0, 0
            for item in range(scores.shape[1]):
                higher += scores[row, item] > bar
                same += scores[row, item] == bar
            for place in range(touched_starts[row], touched_starts[row + 1]):
                higher -= scores[row, touched[place]] > bar
                same -= scores[row, touched[place]] == bar
            above[action], equal[action] = higher, same


@compiled()
def _add_lost(
    scores: NDArray[np.float32],
    first: int,
    users: Counts,
    bars: NDArray[np.float32],
    margins: NDArray[np.float32],
    starts: Counts,
    touched_starts: Counts,
    touched: Rows,
    place_of: Rows,
    lost: NDArray[np.float64],
) -> None:
    """Add what each held-out item loses to the untouched items at places `first`, `first` + 1, … of the order."""
    for row in range(len(users)):
        user = users[row]
        for action in range(starts[user], starts[user + 1]):
            bar, margin = bars[action], margins[action]
            total = 0.0
            for place in range(scores.shape[1]):
                total += _lost_to(scores[row, place] - bar, margin)
            for place in range(touched_starts[user], touched_starts[user + 1]):
                at = place_of[touched[place]] - first
                if 0 <= at < scores.shape[1]:
                    total -= _lost_to(scores[row, at] - bar, margin)
            lost[action] += total


@compiled(inline="always")
def _lost_to(difference: np.float32, margin: np.float32) -> float:
    """One place to a higher score, half a place to an equal one."""
    if difference > margin:
        return 1.0
    return 0.5 if difference >= -margin else 0.0
