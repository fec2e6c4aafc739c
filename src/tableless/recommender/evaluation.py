"""How good is a ranking? AUC as the paper defines it, hit rate and NDCG, over all items, exactly.

For each held-out action of a user, its item is compared with every item the user never touched (in training or in a
held-out action). Equal scores count half: schemes whose ids collide give exact ties, and any other rule would reward
or punish them for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..embedding.compiling import compiled
from ..embedding.scheme import EmbeddingScheme
from .interactions import Interactions
from .models import Recommender
from .splits import Split

Rows = NDArray[np.int32]
ScoreRows = Callable[[Rows], Tensor]
"""Scores of all items for some users: rows [n] -> float32 [n, num_items]."""

CUTOFF = 10
_BLOCK_PAIRS = 4_000_000
_CHUNK = 65_536  # items embedded at once: the codes of millions would take gigabytes


@dataclass(frozen=True)
class Metrics:
    """Means over held-out actions; `groups` has the AUC of parts of them."""

    auc: float
    hit_rate: float
    ndcg: float
    num_evaluated: int
    num_held_out: int
    groups: dict[str, float] = field(default_factory=dict)

    @property
    def sampled(self) -> bool:
        """Was only a part of the held-out actions evaluated?"""
        return self.num_evaluated < self.num_held_out


def evaluate(
    score_rows: ScoreRows,
    split: Split,
    *,
    on: Literal["validation", "test"] = "test",
    max_pairs: float = 2e9,
    answers_new_ids: bool = True,
    seed: int = 0,
) -> Metrics:
    """Measure a scorer on the held-out actions of a split.

    Where users × items exceeds `max_pairs`, a seeded sample of the held-out actions is taken (`Metrics.sampled`). A
    scorer that can't answer for new ids is measured on the known ones alone, among the known items.
    """
    users, items = (split.test_users, split.test_items) if on == "test" else (
        split.validation_users, split.validation_items
    )  # fmt: skip
    num_held_out = len(users)
    num_items = split.train.num_items if answers_new_ids else split.num_known_items
    if not answers_new_ids:
        known = (users < split.num_known_users) & (items < split.num_known_items)
        users, items = users[known], items[known]
    if not len(users):
        raise ValueError(f"there is no held-out action to evaluate on in {on}; is every user new or too short?")
    affordable = max(1, int(min(max_pairs / num_items, len(users))))
    if len(users) > affordable:
        chosen = np.sort(np.random.default_rng(seed).choice(len(users), affordable, replace=False))
        users, items = users[chosen], items[chosen]
    outcome = compare_with_untouched(score_rows, split, users=users, items=items, num_items=num_items)
    return _summarise(outcome, split, users=users, items=items, num_held_out=num_held_out)


@dataclass(frozen=True)
class Comparison:
    """For each held-out action: how many untouched items score below it, above it, and the same."""

    below: NDArray[np.int64]
    above: NDArray[np.int64]
    equal: NDArray[np.int64]

    @property
    def auc(self) -> NDArray[np.float64]:
        """The share of untouched items that score below, a tie counting half; a half too where nothing is untouched."""
        others = self.below + self.above + self.equal
        return np.where(others, (self.below + self.equal / 2) / np.maximum(others, 1), 0.5)

    @property
    def position(self) -> NDArray[np.float64]:
        """Where the held-out item stands in the ranking, from 0; amid its ties on average."""
        return self.above + self.equal / 2


def compare_with_untouched(
    score_rows: ScoreRows, split: Split, *, users: Rows, items: Rows, num_items: int
) -> Comparison:
    """Block by block: users × items never exist at once."""
    below, equal, above = (np.zeros(len(users), np.int64) for _ in range(3))
    touched_by = _touched_by(split)
    block = max(1, _BLOCK_PAIRS // num_items)
    for start in range(0, len(users), block):
        part = slice(start, start + block)
        scores = score_rows(users[part]).detach().cpu().contiguous().numpy()
        touched_starts, touched = touched_by(users[part])
        _count(
            scores, items[part], num_items, touched_starts, touched, below[part], equal[part], above[part]
        )  # fmt: skip
    return Comparison(below=below, above=above, equal=equal)


def given_negatives(score_rows: ScoreRows, users: Rows, items: Rows, negatives: list[Rows]) -> Comparison:
    """NCF's protocol: each held-out item against a list of negatives that came with the data."""
    below, above, equal = (np.zeros(len(users), np.int64) for _ in range(3))
    for row, others in enumerate(negatives):
        scores = score_rows(users[row : row + 1])[0].detach().cpu().numpy()
        below[row] = (scores[others] < scores[items[row]]).sum()
        above[row] = (scores[others] > scores[items[row]]).sum()
        equal[row] = len(others) - below[row] - above[row]
    return Comparison(below=below, above=above, equal=equal)


def model_scores(model: Recommender, split: Split) -> ScoreRows:
    """All item vectors are computed once, a user's when asked for. Only known items, if the model knows no others."""
    device = next(model.parameters()).device
    model.eval()
    item_ids = split.train.item_ids if model.answers_new_ids else split.train.item_ids[: split.num_known_items]
    item_inputs = scheme_inputs(model.items, item_ids)
    items = torch.cat([_prepared_items(model, part.to(device)) for part in torch.split(item_inputs, _CHUNK)])
    user_inputs = scheme_inputs(model.users, split.train.user_ids)

    def score_rows(users: Rows) -> Tensor:
        with torch.no_grad():
            vectors = model.user_vectors(user_inputs[torch.from_numpy(users).long()].to(device))
            return model.score_all(model.prepare_users(vectors), items)

    return score_rows


@torch.no_grad()
def _prepared_items(model: Recommender, inputs: Tensor) -> Tensor:
    return model.prepare_items(model.item_vectors(inputs))


def popularity_scores(train: Interactions) -> ScoreRows:
    """Everyone gets what most people chose: the floor under every personal recommendation."""
    counts = torch.from_numpy(np.bincount(train.items, minlength=train.num_items)).to(torch.float32)
    return lambda users: counts.expand(len(users), -1)


def scheme_inputs(scheme: EmbeddingScheme, ids: NDArray[np.int64]) -> Tensor:
    """What a scheme is asked for each row: the id itself, or the row's number where it has a table of rows."""
    return torch.from_numpy(np.array(ids)) if scheme.open_vocabulary else torch.arange(len(ids))


def _touched_by(split: Split) -> Callable[[Rows], tuple[NDArray[np.int64], Rows]]:
    """For users [n]: the items of their training and held-out actions, and where each user's begin [n + 1]."""
    starts = split.train.starts
    held_out = np.full((split.train.num_users, 2), -1, np.int32)
    held_out[split.validation_users, 0] = split.validation_items
    held_out[split.test_users, 1] = split.test_items

    def touched(users: Rows) -> tuple[NDArray[np.int64], Rows]:
        first = starts[users]
        lengths = starts[users.astype(np.int64) + 1] - first
        ends = np.cumsum(lengths + 2)  # two places for the held-out items; -1 where there is none
        begins = ends - lengths - 2
        items = np.empty(int(ends[-1]), np.int32)
        items[ends - 2], items[ends - 1] = held_out[users, 0], held_out[users, 1]
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        items[np.repeat(begins, lengths) + within] = split.train.items[np.repeat(first, lengths) + within]
        return np.concatenate([begins, ends[-1:]]), items

    return touched


def _summarise(outcome: Comparison, split: Split, *, users: Rows, items: Rows, num_held_out: int) -> Metrics:
    auc, position = outcome.auc, outcome.position
    hit = position < CUTOFF
    groups = {
        name: float(auc[members].mean()) for name, members in _groups(split, users, items).items() if members.any()
    }
    return Metrics(
        auc=float(auc.mean()),
        hit_rate=float(hit.mean()),
        ndcg=float((hit / np.log2(position + 2)).mean()),
        num_evaluated=len(users),
        num_held_out=num_held_out,
        groups=groups,
    )


def _groups(split: Split, users: Rows, items: Rows) -> dict[str, NDArray[np.bool_]]:
    """Head, middle and tail are the items behind a third of the training actions each, most popular first."""
    counts = np.bincount(split.train.items, minlength=split.train.num_items)
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    third = np.empty(len(counts), np.int64)
    third[order] = np.minimum(before * 3 // max(int(counts.sum()), 1), 2)
    new_user, new_item = users >= split.num_known_users, items >= split.num_known_items
    return {
        "head": (third[items] == 0) & ~new_item,
        "middle": (third[items] == 1) & ~new_item,
        "tail": (third[items] == 2) & ~new_item,
        "new users": new_user,
        "new items": new_item,
    }


@compiled()
def _count(
    scores: NDArray[np.float32],
    held_out: Rows,
    num_items: int,
    touched_starts: NDArray[np.int64],
    touched: Rows,
    below: NDArray[np.int64],
    equal: NDArray[np.int64],
    above: NDArray[np.int64],
) -> None:
    """Compare each row's held-out score with all of the row, then take back what the user has touched."""
    seen = np.full(scores.shape[1], -1, np.int64)  # the row that last touched an item: repeats count once
    for row in range(len(held_out)):
        bar = scores[row, held_out[row]]
        lower, same = 0, 0
        for item in range(num_items):
            lower += scores[row, item] < bar
            same += scores[row, item] == bar
        others = num_items
        seen[held_out[row]] = row
        lower, same, others = lower, same - 1, others - 1
        for place in range(touched_starts[row], touched_starts[row + 1]):
            item = touched[place]
            if 0 <= item < num_items and seen[item] != row:
                seen[item] = row
                lower -= scores[row, item] < bar
                same -= scores[row, item] == bar
                others -= 1
        below[row], equal[row], above[row] = lower, same, others - lower - same
