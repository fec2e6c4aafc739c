"""Small data that every test of training can use."""

import functools

import numpy as np

from tableless.recommender.interactions import Interactions, Split, split_leave_one_out
from tableless.recommender.world import World


def interactions_of(*picks: list[int], num_items: int) -> Interactions:
    """Users 0, 1, … with the items they picked, in order."""
    counts = np.array([len(own) for own in picks])
    return Interactions(
        user_ids=np.arange(len(picks)) * 10,
        item_ids=np.arange(num_items) * 100,
        starts=np.concatenate([[0], np.cumsum(counts)]),
        items=np.array([item for own in picks for item in own], np.int32),
        times=np.concatenate([np.arange(count) for count in counts]),
        item_names=None,
        user_kind="integer",
        item_kind="integer",
    )


@functools.cache
def small_world() -> World:
    return World(num_users=200, num_items=120, num_actions=6_000, num_clusters=4)


@functools.cache
def small_split() -> Split:
    return split_leave_one_out(small_world().interactions())
