"""Loading: which data, and how it is split → interactions, ready to train on."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files.scheme_directory import require_kinds
from ..files.whole import staged
from .core import keep_core
from .interactions import DataError, Interactions, Report
from .sources import find_data
from .splits import Split, split_given, split_global_time, split_leave_one_out
from .world import World

if TYPE_CHECKING:
    from .reading.columns import Columns

    _Source = tuple[list[Path], Columns]  # files that are read alike; a second source has the test actions

_FEW_ACTIONS = 1 << 22  # kept in memory, if nobody asked for them to be kept on disk


def load_interactions(
    data: str | Path,
    *,
    data_dir: Path | str | None = None,
    user_col: str | None = None,
    item_col: str | None = None,
    time_col: str | None = None,
    core: int = 0,
    cache_dir: Path | str | None = None,
    report: Report | None = None,
) -> Interactions:
    """Interactions of a file, a directory of parquet files, a known dataset or the synthetic world.

    A known name is looked for in `data_dir`, else in $TABLELESS_DATA, else in ~/.cache/tableless/data, and downloaded
    into there if it can be. Columns that are not named are guessed (see `guess_columns`), and `report` is told which.
    With a `cache_dir` the prepared arrays are kept there, and used again while the files and the options are the same.
    """
    world = World.parse(str(data))
    if world is not None:
        return keep_core(world.interactions(), core)
    from .reading.columns import guess_columns

    files = find_data(data, data_dir=data_dir, report=report)
    columns = guess_columns(files[0], user_col=user_col, item_col=item_col, time_col=time_col)
    return _loaded([(files, columns)], core=core, cache_dir=cache_dir, report=report)


def load_parts(
    data: str | Path,
    *,
    test: str | Path | None = None,
    part_col: str | None = None,
    data_dir: Path | str | None = None,
    user_col: str | None = None,
    item_col: str | None = None,
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
    if World.parse(str(data)) is not None:
        raise DataError("the synthetic world has no given split; leave one out, or name a file")
    from .reading.columns import guess_columns

    found = [find_data(name, data_dir=data_dir, report=report) for name in (data, test) if name is not None]
    named = {"user_col": user_col, "item_col": item_col, "time_col": "", "part_col": part_col}
    sources = [(files, guess_columns(files[0], **named)) for files in found]
    return _loaded(sources, core=0, cache_dir=cache_dir, report=report)


def _loaded(
    sources: Sequence[_Source], *, core: int, cache_dir: Path | str | None, report: Report | None
) -> Interactions:
    """What `_prepared` makes: from the cache, or else in memory or in files without a name."""
    if report is not None:
        for files, columns in sources:
            report(f"{files[0]}: {columns}", None, None)
    if cache_dir is not None:
        return _prepared(sources, core=core, cache=Path(cache_dir), report=report)
    # The arrays stay readable after their files are gone, for as long as they are mapped.
    with tempfile.TemporaryDirectory(prefix="tableless-", ignore_cleanup_errors=True) as temporary:
        prepared = _prepared(sources, core=core, cache=Path(temporary), report=report)
        return prepared.in_memory() if prepared.num_actions <= _FEW_ACTIONS else prepared


def _prepared(sources: Sequence[_Source], *, core: int, cache: Path, report: Report | None) -> Interactions:
    from .prepare import prepare

    (files, columns), *test = sources
    directory = cache / f"{files[0].name.partition('.')[0]}-{_fingerprint(sources)}"
    if not directory.exists():
        with staged(directory) as staging:
            prepare(files, columns=columns, directory=staging, test=test[0] if test else None, report=report)
    if core <= 1:
        return Interactions.load(directory)
    core_directory = cache / f"{directory.name}-core-{core}"
    if not core_directory.exists():
        with staged(core_directory) as staging:
            keep_core(Interactions.load(directory), core, directory=staging)
    return Interactions.load(core_directory)


def _fingerprint(sources: Sequence[_Source]) -> str:
    described = [
        ([(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files], columns.by_role)
        for files, columns in sources
    ]
    text = json.dumps([2, described])  # 2: change it with what `prepare` writes
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class DataConfig:
    """Which interactions, and how they are split."""

    data: str = field(
        metadata={"argument": True, "help": "A file, a directory of parquet files, a known name, or `world`."}
    )
    data_dir: str | None = field(
        default=None,
        metadata={
            "is_path": True,
            "envvar": "TABLELESS_DATA",
            "help": "Where known datasets are looked for, and downloaded to.",
        },
    )
    user_col: str | None = field(default=None, metadata={"help": "Column of the user ids; guessed from common names."})
    item_col: str | None = field(default=None, metadata={"help": "Column of the item ids; guessed from common names."})
    time_col: str | None = field(default=None, metadata={"help": "Column of the times; guessed from common names."})
    core: int = field(default=0, metadata={"help": "First keep only users and items with at least this many actions."})
    split: str = field(
        default="leave-one-out",
        metadata={
            "help": "leave-one-out (each user's last), global-time, or column: the column `split` (another: "
            "column:NAME) says train, validation or test."
        },
    )
    split_seed: int = 0
    test: str | None = field(
        default=None,
        metadata={"help": "A file with the test actions: everything in DATA is then for training."},
    )

    def __post_init__(self) -> None:
        if self.split not in ("leave-one-out", "global-time") and not self.part_col:
            raise ValueError(
                f"split is {self.split!r}; it must be leave-one-out, global-time, column (the one called `split`) or "
                "column:NAME"
            )
        if self.test is not None and self.split != "leave-one-out":
            raise ValueError(f"the test file {self.test} is the split; split {self.split} cannot be used with it")
        if self.core and (self.test is not None or self.part_col):
            raise ValueError(
                f"core {self.core} cannot be used with a given split, which would not be the given one any more"
            )

    @property
    def part_col(self) -> str | None:
        """The column that says train, validation or test of each action; None where no column does."""
        kind, _, name = self.split.partition(":")
        return (name if ":" in self.split else "split") if kind == "column" else None

    def settings(self) -> dict[str, Any]:
        """Plain values that build it again; `test` only where there is one, as in what was written before it."""
        settings = asdict(self)
        return settings if self.test is not None else {key: settings[key] for key in settings if key != "test"}


def recorded_data(config: Mapping[str, Any]) -> DataConfig:
    """What the config of a run says about the data that it was trained on."""
    data = config.get("data")
    names = {each.name for each in fields(DataConfig)}
    if not isinstance(data, dict) or not {"data"} <= data.keys() <= names:
        raise ValueError("the run's config.json does not say which data it was trained on (`data`)")
    require_kinds(DataConfig, data)
    return DataConfig(**data)


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
        core=config.core,
        cache_dir=cache_dir,
        report=report,
    )
    if config.split == "global-time":
        return split_global_time(interactions)
    return split_leave_one_out(interactions, seed=config.split_seed)
