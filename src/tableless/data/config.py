"""Which data, which of its rows count, and how it is split: what a user says, before anything is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from ..files.scheme_directory import require_kinds
from ..hints import did_you_mean, require_choice


@dataclass(frozen=True)
class RowRules:
    """What a user says about the rows of the files. The defaults say nothing: every row counts, and must be whole."""

    drop_missing: bool = False  # leave out rows without a user, an item, a time or a rating
    rating_col: str | None = None
    min_rating: float | None = None  # leave out rows with a lower rating
    date_format: str | None = None  # "dmy", "mdy", or a format such as "%m/%d/%Y %H:%M"

    def __post_init__(self) -> None:
        if self.min_rating is not None and not math.isfinite(self.min_rating):
            raise ValueError(f"--min-rating (min_rating) is {self.min_rating}; it must be a number")
        if self.date_format is not None and self.date_format not in ("dmy", "mdy") and "%" not in self.date_format:
            raise ValueError(
                f"--date-format (date_format) is {self.date_format!r}; it must be dmy (the day first), mdy (the month "
                "first) or a format such as '%m/%d/%Y %H:%M'"
            )

    def given(self) -> dict[str, Any]:
        """Only what differs from the defaults."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {each.name: values[each.name] for each in fields(self) if values[each.name] != each.default}


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


FeatureUse = Literal["auto", "encoding", "new-ids"]
"""What features are used for."""


@dataclass(frozen=True)
class FeatureConfig:
    """Files of features of users and of items, and what they are used for."""

    item_features: str | None = field(
        default=None,
        metadata={
            "help": "A file with features of items; columns are guessed, or named: items.csv:genres,author,year."
        },
    )
    user_features: str | None = field(
        default=None, metadata={"help": "A file with features of users, in the same way."}
    )
    features: FeatureUse = field(
        default="auto",
        metadata={
            "help": "encoding: in the code of a dhe, and for new ids; new-ids: for new ids alone; "
            "auto: encoding with dhe, else new-ids."
        },
    )

    def __post_init__(self) -> None:
        require_choice("features", self.features, get_args(FeatureUse))
        if self.features != "auto" and self.item_features is None and self.user_features is None:
            raise ValueError(
                f"--features (features) {self.features} needs features: give --item-features (item_features) or "
                "--user-features (user_features)"
            )


def recorded_data(config: Mapping[str, Any]) -> DataConfig:
    """What the config of a run says about the data that it was trained on."""
    data = config.get("data")
    names = {each.name for each in fields(DataConfig)}
    if not isinstance(data, dict) or not {"data"} <= data.keys() <= names:
        raise ValueError("the run's config.json does not say which data it was trained on (`data`)")
    require_kinds(DataConfig, data)
    return DataConfig(**data)
