"""Small data that the tests share."""

import functools

import numpy as np
import polars as pl

from tableless.data.interactions import Interactions
from tableless.data.splits import Split, split_leave_one_out
from tableless.data.world import World


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


def build(actions_of_users, times_of_users=None, num_items=None):
    """User u (id 10·u) did actions_of_users[u]; item row i has id 100·i and the name "i"."""
    items = np.array([item for actions in actions_of_users for item in actions], np.int32)
    num_items = num_items or int(items.max()) + 1
    return Interactions(
        user_ids=np.arange(len(actions_of_users)) * 10,
        item_ids=np.arange(num_items) * 100,
        starts=np.cumsum([0, *map(len, actions_of_users)]),
        items=items,
        times=None if times_of_users is None else np.array([t for times in times_of_users for t in times]),
        item_names=pl.Series([str(item) for item in range(num_items)]),
        user_kind="integer",
        item_kind="string",
    )


def in_order(actions_of_users):
    return build(actions_of_users, [range(len(actions)) for actions in actions_of_users])


def assert_same(one, other):
    for name in ("user_ids", "item_ids", "starts", "items", "times"):
        left, right = getattr(one, name), getattr(other, name)
        assert (left is None) == (right is None), name
        if left is not None:
            np.testing.assert_array_equal(left, right, err_msg=name)
            assert left.dtype == right.dtype, name
    assert (one.user_kind, one.item_kind) == (other.user_kind, other.item_kind)
    assert (one.item_names is None) == (other.item_names is None)
    if one.item_names is not None:
        assert one.item_names.to_list() == other.item_names.to_list()
