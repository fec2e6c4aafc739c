"""How good is a ranking? `METRICS` is the one place that knows the measures; everything that shows them reads it.

The protocol: each held-out item of a user is compared with the items that this user never touched (in training or in
a held-out action). Equal scores count half: schemes whose ids collide give exact ties, and any other rule would reward
or punish them for it. A user may have several held-out items; a result is a mean over users.

Where all users times all items are too many, fewer users are drawn, but at least `FEWEST_USERS`. If that is still too
much, each user's AUC is taken against some untouched items, drawn at random: that is unbiased. Measures of the top of
the ranking are not (they would depend on how many are drawn), so they are always exact over all items, for the users
drawn. Users and items are drawn from the split alone: every model is measured on the same ones.

`popularity_warning` says in words that results are no better than popularity alone, and what to try.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.splits import Split
from .ranking import HeldOut, Outcome, Sample, count_all, count_drawn, count_top, draw_sample
from .scoring import Scorer

Values = NDArray[np.float64]

EXACT_PAIRS = 2e9
"""Pairs of user and item that are scored, at most, where nothing else is said."""


def hit_rate(outcome: Outcome, cutoff: int) -> Values:
    """1 for each user with a held-out item among the first `cutoff`, else 0."""
    return outcome.any_by_user(outcome.position < cutoff).astype(np.float64)


def recall(outcome: Outcome, cutoff: int) -> Values:
    """The share of each user's held-out items that are among the first `cutoff`."""
    return outcome.sum_by_user(outcome.position < cutoff) / outcome.num_items


def ndcg(outcome: Outcome, cutoff: int) -> Values:
    """The gain of each user's held-out items by their places, as a share of the highest that is possible."""
    gain = np.where(outcome.position < cutoff, 1 / np.log2(outcome.position + 2), 0.0)
    best = np.cumsum(1 / np.log2(np.arange(cutoff) + 2))
    return outcome.sum_by_user(gain) / best[np.minimum(outcome.num_items, cutoff) - 1]


@dataclass(frozen=True)
class Metric:
    """A measure: what people call it, and its value for each user. `cutoff` is None where the whole ranking counts."""

    label: str
    by_user: Callable[[Outcome], Values]
    cutoff: int | None = None


def _at(label: str, by_user: Callable[[Outcome, int], Values], cutoff: int) -> Metric:
    return Metric(f"{label}@{cutoff}", lambda outcome: by_user(outcome, cutoff), cutoff)


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "auc": Metric("AUC", lambda outcome: outcome.sum_by_user(outcome.auc) / outcome.num_items),
        "hr@10": _at("HR", hit_rate, 10),
        "ndcg@10": _at("NDCG", ndcg, 10),
        "recall@20": _at("Recall", recall, 20),
        "ndcg@20": _at("NDCG", ndcg, 20),
    }
)
"""Every measure by the name it has in results, flags and JSON. A new one is one line here."""


@dataclass(frozen=True)
class Measured:
    """Means over users by the names of `METRICS`, and the standard error of each over the users that were drawn."""

    means: dict[str, float]
    errors: dict[str, float]
    num_evaluated: int  # users
    num_held_out: int  # users who have a held-out action, drawn or not
    auc_items: int | None  # drawn for each user, to take the AUC against; None: all
    groups: dict[str, float] = field(default_factory=dict)  # the AUC of parts of the held-out actions

    def __getitem__(self, name: str) -> float:
        return self.means[name]

    @property
    def auc(self) -> float:
        """The measure that everything has."""
        return self.means["auc"]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `results.json` and the lines of experiments have them: each mean, and its error as _se."""
        errors = {f"{name}_se": value for name, value in self.errors.items()}
        sizes = {"evaluated": self.num_evaluated, "held_out": self.num_held_out, "auc_items": self.auc_items}
        return self.means | errors | sizes


def measure_scorer(
    score: Scorer,
    split: Split,
    *,
    on: HeldOut = "test",
    max_pairs: float = EXACT_PAIRS,
    known_only: bool = False,
    metrics: Collection[str] = tuple(METRICS),
    seed: int = 0,
) -> Measured:
    """Measure a scorer on the held-out actions of a split, as far as `max_pairs` allow (see `draw_sample`).

    With `known_only`, actions of new users or with new items are left out, and new items are not ranked: a scorer that
    has no rows for them can't be asked.
    """
    sample = draw_sample(split, on=on, max_pairs=max_pairs, known_only=known_only, seed=seed)
    return measure_on_sample(sample, score, split, metrics=metrics)


def measure_on_sample(
    sample: Sample, score: Scorer, split: Split, *, metrics: Collection[str] = tuple(METRICS)
) -> Measured:
    """Measure a scorer on users and items that were drawn before."""
    cutoffs = [METRICS[name].cutoff for name in metrics]
    if sample.others is None:
        outcome = count_all(score, sample)
    else:
        outcome = count_drawn(score, sample)
        if largest := max((cutoff for cutoff in cutoffs if cutoff is not None), default=None):
            popular_first = np.argsort(-np.bincount(split.train.items, minlength=split.train.num_items), kind="stable")
            order = popular_first[popular_first < sample.num_items].astype(np.int32)
            outcome = outcome.with_places(count_top(score, sample, order=order, cutoff=largest))
    return Measured(
        **means_and_errors(outcome, metrics),
        num_evaluated=len(sample.users),
        num_held_out=sample.num_held_out,
        auc_items=None if sample.others is None else sample.others.shape[1],
        groups={
            name: float(outcome.auc[members].mean())
            for name, members in _groups(split, sample.user_of_action, sample.items).items()
            if members.any()
        },
    )


def means_and_errors(outcome: Outcome, metrics: Collection[str] = tuple(METRICS)) -> dict[str, dict[str, float]]:
    """The `means` and `errors` of a `Measured`. A single user has no spread, and so no error."""
    values = {name: METRICS[name].by_user(outcome) for name in metrics}
    return {
        "means": {name: float(own.mean()) for name, own in values.items()},
        "errors": {name: float(own.std(ddof=1) / math.sqrt(len(own))) for name, own in values.items() if len(own) > 1},
    }


def _groups(split: Split, users: NDArray[np.int32], items: NDArray[np.int32]) -> dict[str, NDArray[np.bool_]]:
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


FEWEST_STEPS = 50
"""Steps of an epoch. With fewer, a table may stay at the level of popularity until its patience ends."""
_SMALLEST_BATCH = 32


def is_above_popularity(results: Mapping[str, Any]) -> bool:
    """Is the test AUC above that of popularity alone, by more than its standard error?"""
    return bool(results["auc"] > results["popularity_auc"] + (results.get("auc_se") or 0.0))


def popularity_warning(
    results: Mapping[str, Any], *, training: Mapping[str, Any], scheme: str, num_actions: int
) -> str | None:
    """What to try if a model is not clearly better than popularity; None if it is.

    `training` has the settings of `TrainConfig`. Settings are named as in Python.
    """
    if is_above_popularity(results) or math.isnan(results["auc"]):  # not a number: nothing was measured
        return None
    auc, popularity = results["auc"], results["popularity_auc"]
    is_below = auc < popularity - (results.get("auc_se") or 0.0)
    found = "is below that of popularity alone" if is_below else "is not clearly above that of popularity alone"
    tries = "; ".join(_tries(results, training, scheme, num_actions))
    return f"The test AUC of {auc:.4f} {found} ({popularity:.4f}): the model has not learned tastes. Try {tries}."


def _tries(results: Mapping[str, Any], training: Mapping[str, Any], scheme: str, num_actions: int) -> Iterator[str]:
    batch_size, recipe = training.get("batch_size"), training.get("recipe")
    if batch_size and num_actions / batch_size < FEWEST_STEPS:
        steps = max(1, -(-num_actions // batch_size))
        smaller = max(_SMALLEST_BATCH, 1 << max(0, (num_actions // FEWEST_STEPS).bit_length() - 1))
        if smaller < batch_size:
            yield f"batch_size={smaller} (with {batch_size} an epoch of this data has few steps: {steps})"
    if training.get("epochs"):
        reason = " (training ended at its limit)" if results.get("capped") else ""
        yield f"more epochs than epochs={training['epochs']}{reason}"
    if recipe and scheme != "full":
        yield "recipe='paper'" if recipe == "fast" else "recipe='fast'"
    if scheme != "full":
        yield "a larger budget"
