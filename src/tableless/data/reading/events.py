"""Events of a stream: lines of JSON or CSV → users, items and times. What is wrong is counted, and never an end."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...embedding.ids import to_ids
from ...kernels import Int64s
from ..interactions import DataError, Kind
from .columns import ITEM_COLUMNS, TIME_COLUMNS, USER_COLUMNS
from .line_sources import LineSource, SourceLine, SourcePlace

MALFORMED, REPEATED, UNORDERED, LATE = "malformed", "repeated", "out of order", "late"
REMEMBERED = 100_000
"""Events of late by which a repeated one is known."""
_LARGEST_LINE = 1 << 16  # bytes; a longer one is no event


@dataclass(frozen=True)
class EventBatch:
    """Some events, in the order in which they came."""

    users: Int64s  # [events] ids
    items: Int64s  # [events]
    place: SourcePlace  # behind the last of them
    lines: list[bytes]  # as they came, also those that do not count
    newest: float  # the latest time so far; -inf without times


@dataclass
class EventReader:
    """Makes events of lines, and counts what is wrong with them.

    An event is a JSON object, or a row of a CSV whose first line names the columns. An event with the same user, item
    and time as one of the last 100,000 is repeated, and is left out. One that is older than another before it is out of
    order, and one that is older than all of the batch before is late: these count like any other, because nothing that
    is learned depends on a clock.
    """

    user_col: str | None = None
    item_col: str | None = None
    time_col: str | None = None
    kinds: dict[str, Kind] = field(default_factory=dict)  # of users and items, by the first event
    counts: Counter[str] = field(default_factory=Counter)
    recent: dict[int, None] = field(default_factory=dict)  # hashes, oldest first
    newest: float = -np.inf
    _oldest_of_batch: float = -np.inf
    _columns: dict[str, str] = field(default_factory=dict)
    _header: list[str] = field(default_factory=list)
    _separator: str = ","
    _file: str = ""

    def batches(self, source: LineSource, *, size: int) -> Iterator[EventBatch | None]:
        """Batches of up to `size` events: of fewer, when nothing more is there. None: nothing came."""
        lines: list[SourceLine] = []
        for line in source:
            if line is not None:
                lines.append(line)
            if len(lines) >= size or (line is None and lines):
                yield self.batch(lines)
                lines = []
            elif line is None:
                yield None
        if lines:
            yield self.batch(lines)

    def format_state(self) -> dict[str, Any]:
        """What was found out of the lines so far, as plain values; -inf is None."""
        times = [None if when == -np.inf else when for when in (self.newest, self._oldest_of_batch)]
        found = {"header": self._header, "columns": self._columns, "separator": self._separator, "file": self._file}
        return {"times": times, **found}

    def restore_format(self, state: dict[str, Any]) -> None:
        """Go on as the reader would have that this was the state of."""
        self.newest, self._oldest_of_batch = (-np.inf if when is None else when for when in state["times"])
        self._header, self._columns, self._separator = state["header"], state["columns"], state["separator"]
        self._file = state["file"]

    def batch(self, lines: Sequence[SourceLine]) -> EventBatch:
        """The events of some lines."""
        users: list[Any] = []
        items: list[Any] = []
        oldest = np.inf
        for line in lines:
            if line.place.file != self._file:  # each file of a directory has a first line of its own
                self._file, self._header = line.place.file, []
            event = self._event(line.text)
            if event is None:
                continue
            user, item, when = event
            if self._is_repeated(user, item, when):
                self.counts[REPEATED] += 1
                continue
            if when is not None:
                self.counts[LATE if when < self._oldest_of_batch else UNORDERED] += when < self.newest
                self.newest, oldest = max(self.newest, when), min(oldest, when)
            users.append(user)
            items.append(item)
        if np.isfinite(oldest):
            self._oldest_of_batch = oldest
        texts = [line.text for line in lines]
        return EventBatch(_to_ids(users), _to_ids(items), lines[-1].place, texts, self.newest)

    def _event(self, text: bytes) -> tuple[Any, Any, float | None] | None:
        """User, item and time; None if the line is no event."""
        if not text.strip():
            return None
        try:
            fields_ = self._fields(text)
            if fields_ is None:
                return None
            user, item = (self._id(side, fields_.get(self._column(side, fields_))) for side in ("user", "item"))
            name = self._column("time", fields_)
            return user, item, None if not name else _time(fields_.get(name))
        except (ValueError, TypeError, RecursionError, OverflowError):
            self.counts[MALFORMED] += 1
            return None

    def _fields(self, text: bytes) -> dict[str, Any] | None:
        """By name; None for the line that names the columns."""
        if len(text) > _LARGEST_LINE:
            raise ValueError("too long")
        if text.lstrip().startswith(b"{"):
            found = json.loads(text)
            if not isinstance(found, dict):
                raise ValueError("no object")
            return found
        if not self._header:
            self._begin(text)
            return None
        values = next(csv.reader([text.decode()], delimiter=self._separator))
        if len(values) != len(self._header):
            raise ValueError("another number of columns")
        return dict(zip(self._header, values, strict=True))

    def _begin(self, text: bytes) -> None:
        """A CSV's first line."""
        if text.lstrip().startswith(b"{"):
            return
        line = text.decode(errors="replace").lstrip("\ufeff")
        self._separator = max(",\t;", key=line.count)
        self._header = [name.strip() for name in next(csv.reader([line], delimiter=self._separator), [])]
        self._columns = {}
        for side in ("user", "item"):
            self._column(side, dict.fromkeys(self._header))

    def _column(self, role: str, fields_: dict[str, Any]) -> str:
        """The name of the field that has a user, an item or a time; "" if there is no time."""
        if role not in self._columns:
            named = {"user": self.user_col, "item": self.item_col, "time": self.time_col}[role]
            usual = {"user": USER_COLUMNS, "item": ITEM_COLUMNS, "time": TIME_COLUMNS}[role]
            found = [named] if named else [name for name in usual if name in fields_]
            if not found and role != "time":
                raise DataError(
                    f"no field of the first event is called as {role}s usually are; its fields are "
                    f"{', '.join(fields_)}. Name it by --{role}-col"
                )
            self._columns[role] = found[0] if found else ""
        return self._columns[role]

    def _id(self, side: str, value: Any) -> int | str:
        """In the kind of the first event: an integer that comes as text is one, and any number can be text."""
        if value is None or value == "" or isinstance(value, (bool, float, list, dict)):
            raise ValueError("no id")
        if side not in self.kinds:
            self.kinds[side] = "integer" if _is_integer(value) else "string"
        if self.kinds[side] == "string":
            return str(value)
        if not _is_integer(value) or not -(2**63) <= int(value) < 2**63:
            raise ValueError("no integer")
        return int(value)

    def _is_repeated(self, user: Any, item: Any, when: float | None) -> bool:
        """Without a time nothing tells whether somebody chose the same twice."""
        if when is None:
            return False
        own = int(to_ids([f"{user}\0{item}\0{when!r}"]).item())
        if own in self.recent:
            return True
        self.recent[own] = None
        if len(self.recent) > REMEMBERED:
            del self.recent[next(iter(self.recent))]
        return False


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and value == value.strip() and _round_trip(value))


def _round_trip(text: str) -> bool:
    """Is it the usual way to write an integer? 007 and 1_000 are names."""
    return text.lstrip("-").isdigit() and len(text) < 21 and str(int(text)) == text


def _time(value: Any) -> float | None:
    """A number as it is, a date as seconds."""
    if value is None or value == "":
        return None
    try:
        found = float(value)
    except ValueError:
        found = float(np.datetime64(str(value).removesuffix("Z"), "us").astype(np.int64)) / 1e6
    if not np.isfinite(found):
        raise ValueError("no time")
    return found


def _to_ids(values: list[Any]) -> Int64s:
    ids: Int64s = to_ids(values).numpy() if values else np.zeros(0, np.int64)
    return ids
