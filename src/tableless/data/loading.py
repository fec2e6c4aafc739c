"""Loading: which data, and how it is split → interactions, ready to train on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..embedding.choices import did_you_mean
from ..files.scheme_directory import require_kinds
from .cache import prepare_or_reuse
from .core import keep_core
from .interactions import DataError, Interactions, Report
from .row_rules import RowRules
from .sources import DATASETS, find_known
from .splits import Split, split_given, split_global_time, split_leave_one_out
from .world import World

if TYPE_CHECKING:
    from .reading.files import ActionFiles


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
    return prepare_or_reuse(sniffed, None, core=core, cache_dir=cache_dir, report=report)


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
    return prepare_or_reuse(files, given, core=0, cache_dir=cache_dir, report=report)


def _names_the_world(data: str | Path) -> bool:
    return str(data).startswith("world")


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
    drop_missing: bool = field(
        default=False,
        metadata={
            "option": "--drop-missing",
            "help": "Drop rows without a user or an item (or a time or rating that is read).",
        },
    )
    rating_col: str | None = field(
        default=None, metadata={"help": "Column of the ratings for --min-rating; guessed from common names."}
    )
    min_rating: float | None = field(default=None, metadata={"help": "Only rows with at least this rating count."})
    date_format: str | None = field(
        default=None, metadata={"help": "How dates are written: dmy, mdy, or a format such as '%m/%d/%Y %H:%M'."}
    )
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
        if self.row_rules.rating_col is not None and self.min_rating is None:
            raise ValueError(
                f"--rating-col (rating_col) {self.rating_col} changes nothing alone; say the lowest rating that counts "
                "as a choice by --min-rating (min_rating)"
            )
        if self.split not in ("leave-one-out", "global-time") and not self.part_col:
            raise ValueError(
                f"split is {self.split!r}; it must be leave-one-out, global-time, column (the one called `split`) or "
                "column:NAME" + did_you_mean(self.split, ("leave-one-out", "global-time", "column"))
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

    @property
    def row_rules(self) -> RowRules:
        """Which rows count, and how dates are written."""
        return RowRules(self.drop_missing, self.rating_col, self.min_rating, self.date_format)

    def settings(self) -> dict[str, Any]:
        """Plain values that build it again. Newer ones are there only where they are set, so that older files agree."""
        newer = {"test", *(each.name for each in fields(RowRules))} - self.row_rules.given().keys()
        left_out = newer if self.test is None else newer - {"test"}
        return {name: value for name, value in asdict(self).items() if name not in left_out}


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
