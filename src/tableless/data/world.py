"""A synthetic world: tastes and popularity that are known, so that the best possible score is known too."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .interactions import DataError, Interactions
from .interactions_writer import InteractionsWriter

# Chosen so that, held out as in appendix B.1, popularity alone reaches an AUC of about .76 and the true probabilities
# one of about .9 in the default world: room to learn, and a ceiling below 1. (Both are higher among more items.)
_STRENGTH = 1.9
_POPULARITY_EXPONENT = 1.05
_POPULARITY_SHIFT = 5  # flattens the very top, else a handful of items would be picked by everybody
_FEWEST_ACTIONS = 5
_BLOCK_USERS = 4096  # drawn together: changing this changes the world
_DAY = 24 * 60 * 60
_BEGINNING = 1_577_836_800  # 2020, in seconds


@dataclass(frozen=True)
class World:
    """Users with a latent taste, items in clusters, some of them far more popular than others.

    User u picks item i with a probability proportional to popularity_i · exp(strength · taste_u · centre_cluster(i)),
    never the same item twice. So a user's weights are needed per cluster only, and a world of millions is drawn as
    easily as a small one. All of it follows from `seed`.
    """

    num_users: int = 3000
    num_items: int = 2000
    num_actions: int = 150_000
    num_clusters: int = 50
    dim: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            least = {"num_users": 2, "num_items": 2 * _FEWEST_ACTIONS, "seed": 0}.get(field.name, 1)
            if getattr(self, field.name) < least:
                raise DataError(f"a world needs {field.name} ≥ {least}, not {getattr(self, field.name)}")
        least, most = self.num_users * _FEWEST_ACTIONS, self.num_users * self._most_actions
        if not least <= self.num_actions <= most:
            raise DataError(
                f"{self.num_users} users among {self.num_items} items can have {least} to {most} actions, "
                f"not {self.num_actions}"
            )

    @classmethod
    def parse(cls, text: str) -> World | None:
        """`world` or `world:users=…,items=…,actions=…,clusters=…,dim=…,seed=…`; None if it is anything else."""
        name, _, options = text.partition(":")
        if name != "world":
            return None
        allowed = {field.name.removeprefix("num_"): field.name for field in fields(cls)}
        given: dict[str, int] = {}
        for option in filter(None, options.split(",")):
            key, _, value = option.partition("=")
            if key not in allowed or not value.replace("_", "").isdecimal():
                raise DataError(
                    f"{option!r} in {text!r} is not an option of the world; write world:users=3000,items=2000 with any "
                    f"of {', '.join(allowed)}, each a number"
                )
            given[allowed[key]] = int(value)
        return cls(**given)

    def interactions(self) -> Interactions:
        """Every user's picks in the order they were made, at times in seconds."""
        counts = self._actions_per_user()
        writer = InteractionsWriter(None, with_times=True)
        for first in range(0, self.num_users, _BLOCK_USERS):
            block = counts[first : first + _BLOCK_USERS]
            users = np.arange(first, first + len(block))
            generator = self._generator("picks", first // _BLOCK_USERS)
            logits = self._cluster_logits(users)
            items = _distinct_picks(logits, block, catalogue=self._catalogue, generator=generator)
            writer.append(users, block, items=items, times=_times(block, generator))
        return writer.finish(np.arange(self.num_items), None, user_kind="integer", item_kind="integer")

    def scores(self, user_rows: NDArray[np.int64] | NDArray[np.int32]) -> NDArray[np.float64]:
        """The log-probability of each item for each user, the best score there can be: [len(user_rows), num_items]."""
        logits = self._cluster_logits(np.asarray(user_rows, np.int64))
        total = np.log((np.exp(logits) * self._catalogue.cluster_weights).sum(-1))
        scores: NDArray[np.float64] = (logits - total[:, None])[:, self._catalogue.clusters]
        scores += np.log(self._catalogue.weights)
        return scores

    @property
    def _most_actions(self) -> int:
        return self.num_items // 2

    def _generator(self, purpose: str, block: int = 0) -> np.random.Generator:
        return np.random.default_rng([self.seed, *purpose.encode(), block])

    @cached_property
    def _catalogue(self) -> _Catalogue:
        generator = self._generator("items")
        ranks = generator.permutation(self.num_items)  # so that a low row does not mean a popular item
        weights = (ranks + _POPULARITY_SHIFT) ** -_POPULARITY_EXPONENT
        clusters = generator.integers(0, self.num_clusters, self.num_items)
        return _Catalogue(weights / weights.sum(), clusters, num_clusters=self.num_clusters)

    def _cluster_logits(self, users: NDArray[np.int64]) -> NDArray[np.float64]:
        """strength · taste · centre: [len(users), num_clusters]."""
        centres = self._generator("centres").normal(size=(self.num_clusters, self.dim))
        centres /= np.linalg.norm(centres, axis=-1, keepdims=True)
        tastes = np.empty((len(users), self.dim))
        blocks = users // _BLOCK_USERS
        for block in np.unique(blocks):
            drawn = self._generator("tastes", int(block)).normal(size=(_BLOCK_USERS, self.dim))
            tastes[blocks == block] = drawn[users[blocks == block] % _BLOCK_USERS]
        # Not by `@`, whose last bit depends on how many users are asked about together.
        logits: NDArray[np.float64] = np.einsum("ud,cd->uc", _STRENGTH * tastes, centres)
        return logits

    def _actions_per_user(self) -> NDArray[np.int64]:
        """Log-normal, scaled so that together they are `num_actions`."""
        shares = self._generator("counts").lognormal(sigma=0.8, size=self.num_users)
        spare = self.num_actions - _FEWEST_ACTIONS * self.num_users
        counts = _FEWEST_ACTIONS + (spare * (shares / shares.sum())).astype(np.int64)
        counts = np.minimum(counts, self._most_actions)
        while missing := self.num_actions - int(counts.sum()):  # lost by rounding, or by the limit for a user
            room = np.flatnonzero(counts < self._most_actions)[:missing]
            counts[room] = np.minimum(counts[room] + missing // len(room), self._most_actions)
        return counts


class _Catalogue:
    """Items with their popularity and cluster, laid out so that they can be drawn within a cluster."""

    def __init__(self, weights: NDArray[np.float64], clusters: NDArray[np.int64], *, num_clusters: int) -> None:
        self.weights = weights  # [num_items], together 1
        self.clusters = clusters  # [num_items]
        self._by_cluster = np.argsort(clusters, kind="stable").astype(np.int32)
        self._ends = np.cumsum(weights[self._by_cluster])  # [num_items]: each item is as wide as it is popular
        last = np.searchsorted(clusters[self._by_cluster], np.arange(num_clusters), side="right")
        self._cluster_ends = np.concatenate([[0.0], self._ends])[last]  # [num_clusters]
        self.cluster_weights = np.diff(self._cluster_ends, prepend=0.0)

    def draw(self, clusters: NDArray[np.int64], draws: NDArray[np.float64]) -> NDArray[np.int32]:
        """An item of each cluster, by popularity; `draws` are uniform in [0, 1)."""
        at = self._cluster_ends[clusters] - (1.0 - draws) * self.cluster_weights[clusters]
        place = np.searchsorted(self._ends, at, side="right")
        return self._by_cluster[np.minimum(place, len(self._ends) - 1)]


def _distinct_picks(
    logits: NDArray[np.float64],  # [users, num_clusters]
    counts: NDArray[np.int64],  # [users]
    *,
    catalogue: _Catalogue,
    generator: np.random.Generator,
) -> NDArray[np.int32]:
    """As many different items for each user as `counts` says, in the order they were picked: [counts.sum()].

    Draws with replacement of which only the first of each item counts: that is to draw without replacement.
    """
    edges = np.cumsum(np.exp(logits) * catalogue.cluster_weights, axis=-1)
    edges /= edges[:, -1:]
    # One sorted row of numbers for all users: those of user u lie in (u, u + 1].
    edges = (edges + np.arange(len(edges))[:, None]).ravel()
    users, items = np.empty(0, np.int64), np.empty(0, np.int32)
    missing, effort = counts, 2
    while missing.any():
        new_users = np.repeat(np.arange(len(counts)), effort * missing)
        draws = generator.random((2, len(new_users)))
        clusters = np.searchsorted(edges, new_users + draws[0], side="right") - new_users * logits.shape[1]
        new_items = catalogue.draw(np.minimum(clusters, logits.shape[1] - 1), draws[1])
        users, items = np.concatenate([users, new_users]), np.concatenate([items, new_items])
        by_user = np.argsort(users, kind="stable")
        users, items = users[by_user], items[by_user]
        new = _is_first_of_its_pair(users, items, num_items=len(catalogue.weights))
        users, items = users[new], items[new]
        found = np.bincount(users, minlength=len(counts))
        wanted = np.arange(len(users)) - np.repeat(np.cumsum(found) - found, found) < np.repeat(counts, found)
        users, items = users[wanted], items[wanted]
        missing = counts - np.minimum(found, counts)
        effort = min(2 * effort, 1 << 12)  # the items that are still missing are rare, so more draws are needed
    return items


def _is_first_of_its_pair(users: NDArray[np.int64], items: NDArray[np.int32], *, num_items: int) -> NDArray[np.bool_]:
    _, firsts = np.unique(users * num_items + items, return_index=True)
    marks = np.zeros(len(users), np.bool_)
    marks[firsts] = True
    return marks


def _times(counts: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """Seconds: a user comes at any time of the first year, and is active for some two months. [counts.sum()]"""
    gaps = 1 + generator.exponential(np.repeat(60 * _DAY / counts, counts)).astype(np.int64)
    passed = np.cumsum(gaps)
    before = np.concatenate([[0], passed])[np.cumsum(counts) - counts]  # [users]
    arrival = _BEGINNING + generator.integers(0, 365 * _DAY, len(counts))
    return np.repeat(arrival - before, counts) + passed
