"""The progress of a fit: a record for programs, a bar for people, and a word before a fit that takes long."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from types import TracebackType
from typing import Any

from typing_extensions import Self

QUICKER_SCHEMES = ("low-rank", "hash-embedding", "bloom", "hashing-trick")
"""Schemes that are computed from the rows without steps."""

_TIMED_STEPS = 5  # how long a fit takes is estimated from these; the first of them is not counted, it also compiles
_LONG = 60  # seconds; before a longer fit something is said
OnFit = Callable[[str, "FitProgress"], None]
"""Is told what a fit is doing ("fitting users"), and how far it is."""

_log = logging.getLogger("tableless.embedding")


@dataclass(frozen=True)
class FitProgress:
    """How far a fit of `tableless.distil` is, or `tableless.tune`.

    Attributes:
        done: How many steps are done. It starts again at 1 if the fit has to begin again, and when weights are
            rounded at its end.
        total: How many steps there are. A fit that is close enough ends before.
        error: The error of the step, as a share of the variance of the rows. In `tableless.tune`, the loss of the step.
        seconds_left: How long the remaining steps will take.
        message: Something to tell a person; most often empty. Before a long fit it says how long it will take.
    """

    done: int
    total: int
    error: float
    seconds_left: float
    message: str = ""


class FitReporter:
    """Tells a caller, or a person at a terminal, how far a fit is.

    `progress` is called with a `FitProgress` after every step. With None there is a bar if standard error is a terminal
    and rich is installed, and what must be said is logged. With False nothing is told. Where `num_rows` is
    None, nothing is said of how long it will take, because the word was said before. `task` and `in_words` are for
    the bar: what is done, and the error.
    """

    def __init__(
        self,
        progress: Callable[[FitProgress], None] | bool | None,
        num_rows: int | None,
        *,
        task: str = "fitting",
        in_words: Callable[[float], str] = "{:.1%} unexplained".format,
    ) -> None:
        self._tell = progress if callable(progress) else None
        self.is_silent = progress is False
        self._num_rows = num_rows
        self._in_words = in_words
        self._has_warned = num_rows is None
        self._message = ""
        self._start = 0.0
        self._bar: Any = None
        if not (self._tell or self.is_silent) and sys.stderr.isatty() and find_spec("rich"):
            self._bar = _new_bar(task)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def say(self, message: str) -> None:
        """Something to tell a person. A callable finds it in the record of the next step."""
        if self._tell:
            self._message = message
        elif self._bar:
            self._bar.console.print(message, highlight=False)
        elif not self.is_silent:
            _log.warning(message)

    def on_step(self, done: int, total: int, error: float) -> None:
        """A step is done."""
        if self.is_silent:
            return
        now = time.perf_counter()
        if done == 1:
            self._start = now
        seconds_left = (now - self._start) / max(1, done - 1) * (total - done)
        if done == _TIMED_STEPS and seconds_left > _LONG and not self._has_warned:
            self._has_warned = True
            self.say(
                f"fitting {self._num_rows:,} rows will take about {time_in_words(seconds_left)}. Schemes that are "
                f"computed from the rows take far less: {', '.join(QUICKER_SCHEMES)}"
            )
        if self._tell:
            message, self._message = self._message, ""
            self._tell(FitProgress(done, total, error, seconds_left, message))
        elif self._bar:
            left = f"{self._in_words(error)}, {time_in_words(seconds_left)} left"
            self._bar.update(self._bar.task_ids[0], completed=done, total=total, note=left)


def _new_bar(task: str) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}")
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(task, total=None, note="")
    return bar


def time_in_words(seconds: float) -> str:
    """A time in the unit that a person would take."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
