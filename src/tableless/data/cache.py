"""Prepared arrays, kept for the next time together with what was said about them; and the core of such arrays.

Without a cache directory the arrays are kept in memory. The core has only users and items with enough actions.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..files.whole import staged
from .interactions import DataError, Interactions, Report, user_blocks
from .interactions_writer import InteractionsWriter

if TYPE_CHECKING:
    from .reading.files import ActionFiles

_FEW_ACTIONS = 1 << 22  # so many are kept in memory if there is no cache directory
_FORMAT = 3  # change it with what `prepare` writes
_NOTES = "notes.json"


def prepare_or_reuse(
    files: ActionFiles, test: ActionFiles | None, *, core: int, cache_dir: Path | str | None, report: Report | None
) -> Interactions:
    """Prepared arrays: from the cache, or else in memory or in files that have no name any more."""
    from .prepare import prepare

    if report is not None:
        for decided in (files, test):
            if decided is not None:
                report(str(decided), None, None)
        for remark in files.remarks:
            report(remark, None, None)
    if cache_dir is not None:
        cached = Path(cache_dir) / f"{files.paths[0].name.partition('.')[0]}-{_fingerprint(files, test)}"
        if cached.exists():
            _repeat_notes(cached, report)
        else:
            with staged(cached) as staging:
                notes = _Notes(report)
                prepare(files, test=test, directory=staging, report=notes)
                (staging / _NOTES).write_text(json.dumps(notes.said), encoding="utf-8")
        return _cached_core(cached, core) if core > 1 else Interactions.load(cached)
    # The arrays stay readable after their files are gone, for as long as they are mapped.
    with tempfile.TemporaryDirectory(prefix="tableless-", ignore_cleanup_errors=True) as temporary:
        prepared = prepare(files, test=test, directory=Path(temporary), report=report)
        if core > 1:
            (folder := Path(temporary, "core")).mkdir()
            prepared = keep_core(prepared, core, directory=folder)
        return prepared.in_memory() if prepared.num_actions <= _FEW_ACTIONS else prepared


class _Notes:
    """Passes reports on, and remembers the remarks among them: a user of the cache is told the same."""

    def __init__(self, report: Report | None) -> None:
        self._report = report
        self.said: list[str] = []

    def __call__(self, message: str, done: int | None, total: int | None) -> None:
        if done is None:
            self.said.append(message)
        if self._report is not None:
            self._report(message, done, total)


def _repeat_notes(cached: Path, report: Report | None) -> None:
    if report is not None:
        for note in json.loads((cached / _NOTES).read_text(encoding="utf-8")):
            report(note, None, None)


def _cached_core(cached: Path, core: int) -> Interactions:
    directory = cached.with_name(f"{cached.name}-core-{core}")
    if not directory.exists():
        with staged(directory) as staging:
            keep_core(Interactions.load(cached), core, directory=staging)
    return Interactions.load(directory)


def _fingerprint(*sources: ActionFiles | None) -> str:
    """Of the files as they are now, and of every decision that changes what is read from them."""
    described = [
        (
            [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files.paths],
            files.columns.by_role,
            files.rules.given(),
        )
        for files in sources
        if files is not None
    ]
    return hashlib.sha256(json.dumps([_FORMAT, described]).encode()).hexdigest()[:16]


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
