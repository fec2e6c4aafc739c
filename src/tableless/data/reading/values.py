"""Values: what a format has to answer about a file (`Layout`), and what the values of its columns are (`Kinds`)."""

from __future__ import annotations

import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import polars as pl
import pyarrow as pa

from ..interactions import DataError, Kind

RowPlace = Callable[[int], str]  # where a row of what was read is: the file and the line
Note = Callable[[str], None]  # is told what was decided while a file was read
Names = Mapping[str, str]  # the role of a column ("user", "item", "time", "part", "rating", "title") → its name
TimeKind = Literal["integer", "number", "datetime", "day-first", "month-first", "either-first", "part"]
"""What times are. The three with -first are dates such as 12/1/2010. "part": a `Part` is in the place of the time."""

_UNREADABLE = (
    *(pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException),
    *(OSError, EOFError, zlib.error, UnicodeDecodeError),
)


@dataclass(frozen=True)
class Kinds:
    """What the values of each column are. Text can hold integers or strings: only reading all of it can tell."""

    user: Kind
    item: Kind
    time: TimeKind | None


def common_kinds(train: Kinds, test: Kinds) -> Kinds:
    """The kinds of two sources whose ids mean the same users and items: an id is a string if it is one in either."""
    user: Kind = "string" if "string" in (train.user, test.user) else "integer"
    item: Kind = "string" if "string" in (train.item, test.item) else "integer"
    return Kinds(user, item, "part")


class KindsChanged(Exception):
    """A value shows that a text column is not what its first row was. Read everything again, with `kinds`."""

    def __init__(self, kinds: Kinds, note: str | None = None) -> None:
        super().__init__(kinds)
        self.kinds = kinds
        self.note = note  # what a user is told about it


@dataclass(frozen=True, kw_only=True)
class Layout(ABC):
    """How one file is read. Each format has a layout of its own, and only it knows the format."""

    has_types: ClassVar[bool] = False  # True: the kinds are certain before any row is read
    path: Path
    names: tuple[str, ...]  # of all columns
    has_names: bool = True  # False: the file names no columns, and they are called column_1, column_2, …
    first_row: tuple[Any, ...] = ()  # the first value of each column; only where columns have no names or no types

    @property
    def listing(self) -> str:
        """The names as a message shows them: on one line, whatever characters are in them."""
        shown = ", ".join(name if name.isprintable() else repr(name) for name in self.names[:20])
        return shown if len(self.names) <= 20 else f"{shown}, … ({len(self.names)} in all)"

    @abstractmethod
    def kinds(self, names: Names) -> Kinds:
        """What the users, items and times are: certain where columns have types, else as in the first row."""

    @abstractmethod
    def has_dates(self, name: str) -> bool:
        """Whether a column seems to hold dates."""

    @abstractmethod
    def read(
        self, names: Names, *, rows: tuple[int, int] | None = None, note: Note | None = None
    ) -> Iterator[tuple[pl.DataFrame, RowPlace]]:
        """All rows in order, some at a time; the columns are called by their roles.

        `rows` are the first row and the one after the last, for a format that can `count_rows`. `note` is told what
        had to be decided on the way.
        """

    @abstractmethod
    def read_whole(self, names: Names) -> pl.DataFrame:
        """All rows at once, for a small file of titles; the columns are called by their roles."""

    def count_rows(self) -> int:
        """How many rows the file has, known without reading them."""
        raise DataError(f"{self.path} is not parquet, and only parquet can be streamed; write it as parquet first")


@contextmanager
def one_line_errors(file: Path) -> Iterator[None]:
    """Every error of the libraries that read becomes a `DataError` about the file."""
    try:
        yield
    except _UNREADABLE as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(f"{file} cannot be read: {reason}") from None


def is_number(text: str) -> bool:
    """Whether Python takes it for a number, with a fraction or without."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def kind_of_id(text: str) -> Kind:
    """Integers are only those that come back as the same text: 007 and 7 are different ids.

    Numbers with a point count as integers here: 7.0 is one, and 7.5 is refused when it is read. So does no value.
    """
    return "integer" if re.fullmatch(r"|0|-?[1-9][0-9]{0,18}|-?[0-9]+\.[0-9]*", text) else "string"
