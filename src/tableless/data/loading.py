"""Loading: which data, and how it is split → interactions, ready to train on.

Prepared arrays are kept for the next time, together with what was said about them, if there is a cache directory.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..embedding.ids import to_ids
from ..files.whole import staged
from ..hints import did_you_mean
from .config import DataConfig, RowRules
from .interactions import DataError, Interactions, Report
from .interactions_writer import keep_core
from .sources import DATASETS, find_known
from .splits import Split, split_given, split_global_time, split_leave_one_out
from .world import World

if TYPE_CHECKING:
    from .reading.files import ActionFiles

NUM_EXAMPLES = 3
_LOOKED_AT = 50  # distinct users at the beginning of a file; some may have been left out of the data
_FEW_ACTIONS = 1 << 22  # so many are kept in memory if there is no cache directory
_FORMAT = 3  # of a cache: change it with what `prepare` writes
_NOTES = "notes.json"


def find_data(data: str | Path, *, data_dir: Path | str | None = None, report: Report | None = None) -> list[Path]:
    """The files that a path or a known name stands for; a known dataset that is missing is downloaded."""
    if str(data).lower() in DATASETS:
        return find_known(str(data).lower(), data_dir=data_dir, report=report)
    if not Path(data).exists():
        raise DataError(
            f"{str(data)!r} is neither a file, nor a directory, nor one of the known names: world, "
            f"{', '.join(DATASETS)}{did_you_mean(str(data), ('world', *DATASETS))}"
        )
    from .reading.files import find_files

    return find_files(Path(data))


def load_interactions(
    data: str | Path,
    *,
    data_dir: Path | str | None = None,
    user_col: str | None = None,
    item_col: str | None = None,
    time_col: str | None = None,
    rules: RowRules = RowRules(),  # noqa: B008 - frozen
    core: int = 0,
    cache_dir: Path | str | None = None,
    report: Report | None = None,
) -> Interactions:
    """Interactions of a file, a directory of parquet files, a known dataset or the synthetic world.

    A known name is looked for in `data_dir`, else in $TABLELESS_DATA, else in ~/.cache/tableless/data, and downloaded
    into there if it can be. Columns that are not named are guessed (see `sniff`), and `report` is told which, and how
    many rows the `rules` have left out. With a `cache_dir` the prepared arrays are kept there, and used again while
    the files and the options are the same.
    """
    if _names_the_world(data) and (world := World.parse(str(data))) is not None:
        if rules.min_rating is not None or rules.date_format is not None:
            raise DataError("the synthetic world has no ratings and no dates; leave out --min-rating and --date-format")
        return keep_core(world.interactions(), core)
    from .reading.files import sniff

    files = find_data(data, data_dir=data_dir, report=report)
    sniffed = sniff(files, user_col=user_col, item_col=item_col, time_col=time_col, rules=rules)
    return _prepare_or_reuse(sniffed, None, core=core, cache_dir=cache_dir, report=report)


def load_parts(
    data: str | Path,
    *,
    test: str | Path | None = None,
    part_col: str | None = None,
    data_dir: Path | str | None = None,
    user_col: str | None = None,
    item_col: str | None = None,
    rules: RowRules = RowRules(),  # noqa: B008 - frozen
    cache_dir: Path | str | None = None,
    report: Report | None = None,
) -> Interactions:
    """Interactions with a given split, for `split_given`: the time of each action is its `Part`.

    Either the column `part_col` says train, validation (valid, val, dev) or test, or `test` is a file with the test
    actions and all of `data` is for training. That file may have another format and other names of columns, but ids of
    the same kind. The rest is as in `load_interactions`.
    """
    if (test is None) == (part_col is None):
        raise DataError("a given split needs either a file with the test actions or a column with the parts")
    if _names_the_world(data) and World.parse(str(data)) is not None:
        raise DataError("the synthetic world has no given split; leave one out, or name a file")
    from .reading.files import sniff

    def sniffed(name: str | Path) -> ActionFiles:
        files = find_data(name, data_dir=data_dir, report=report)
        return sniff(files, user_col=user_col, item_col=item_col, time_col="", part_col=part_col, rules=rules)

    files = sniffed(data)
    given = None if test is None else sniffed(test)
    return _prepare_or_reuse(files, given, core=0, cache_dir=cache_dir, report=report)


def _names_the_world(data: str | Path) -> bool:
    return str(data).startswith("world")


def load_split(
    config: DataConfig, *, cache_dir: Path | str | None = None, report: Callable[..., None] | None = None
) -> Split:
    """The data, ready to train on."""
    if config.test is not None or config.part_col is not None:
        parts = load_parts(
            config.data,
            test=config.test,
            part_col=config.part_col,
            data_dir=config.data_dir,
            user_col=config.user_col,
            item_col=config.item_col,
            rules=config.row_rules,
            cache_dir=cache_dir,
            report=report,
        )
        return split_given(parts, seed=config.split_seed, report=report)
    interactions = load_interactions(
        config.data,
        data_dir=config.data_dir,
        user_col=config.user_col,
        item_col=config.item_col,
        time_col=config.time_col,
        rules=config.row_rules,
        core=config.core,
        cache_dir=cache_dir,
        report=report,
    )
    if config.split == "global-time":
        return split_global_time(interactions, report=report)
    return split_leave_one_out(interactions, seed=config.split_seed, report=report)


def example_users(data: DataConfig, interactions: Interactions) -> list[int | str]:
    """Raw ids of a few users of the interactions; empty if their names are not known.

    Interactions have ids and no strings, so strings are read from the beginning of the file again.
    """
    if interactions.user_kind == "integer":
        return [int(user) for user in interactions.user_ids[:NUM_EXAMPLES]]
    names = _first_names(data)
    if not names:
        return []
    known = np.isin(to_ids(names).numpy(), interactions.user_ids)
    return [*(name for name, is_known in zip(names, known, strict=True) if is_known)][:NUM_EXAMPLES]


def _first_names(data: DataConfig) -> list[int | str]:
    from .reading.files import sniff

    try:
        files = sniff(
            find_data(data.data, data_dir=data.data_dir), user_col=data.user_col, item_col=data.item_col, time_col=""
        )
        names = {"user": files.columns.user, "item": files.columns.item}
        frame, _ = next(iter(files.layouts[0].read(names)))
    except (DataError, StopIteration):  # data that was in memory has no file
        return []
    first = frame["user"].drop_nulls().unique(maintain_order=True).head(_LOOKED_AT)
    return [str(name) for name in first if name != ""]


def _prepare_or_reuse(
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
