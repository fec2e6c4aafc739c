"""The core: only users and items with enough actions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .interactions import DataError, Interactions, user_blocks
from .interactions_writer import InteractionsWriter


def keep_core(interactions: Interactions, core: int, *, directory: Path | None = None) -> Interactions:
    """Only users and items with at least `core` actions, repeated until stable, rows renumbered in the same order.

    With a `directory` (which exists and is empty) the result is written there and memory-mapped.
    """
    if core < 0:
        raise DataError(f"core must be 0 (keep everything) or more, not {core}")
    users, items = _core_masks(interactions, core)
    if users.all() and items.all() and directory is None:
        return interactions
    if not users.any():
        raise DataError(f"no user and no item is left with core {core}; take a smaller one")
    new_row = np.cumsum(items, dtype=np.int32) - np.int32(1)
    writer = InteractionsWriter(directory, with_times=interactions.times is not None)
    for block in user_blocks(interactions):
        kept = block.take(users[block.users] & items[block.items])
        kept_users = users[block.user_rows]
        ids, counts = interactions.user_ids[block.user_rows][kept_users], kept.counts()[kept_users]
        writer.append(ids, counts, items=new_row[kept.items], times=kept.times)
    names = interactions.item_names
    return writer.finish(
        interactions.item_ids[items],
        None if names is None else names.gather(np.flatnonzero(items)),
        user_kind=interactions.user_kind,
        item_kind=interactions.item_kind,
    )


def _core_masks(interactions: Interactions, core: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    users = np.ones(interactions.num_users, np.bool_)
    items = np.ones(interactions.num_items, np.bool_)
    while True:
        user_counts = np.zeros(interactions.num_users, np.int64)
        item_counts = np.zeros(interactions.num_items, np.int64)
        for block in user_blocks(interactions):
            kept = block.take(users[block.users] & items[block.items])
            user_counts[block.user_rows] = kept.counts()
            item_counts += np.bincount(kept.items, minlength=interactions.num_items)
        stable = np.array_equal(users, user_counts >= core) and np.array_equal(items, item_counts >= core)
        users, items = user_counts >= core, item_counts >= core
        if stable:
            return users, items
