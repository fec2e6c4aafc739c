"""Row rules: which rows of a file count, and how its dates are written."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any


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
