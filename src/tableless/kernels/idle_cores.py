"""Torch on no more threads than there are idle cores.

Torch shares a product out over threads, and the first that is done waits for the others. If another process has the
core of one of them, all wait for it, and they wait in a busy loop, which takes the core from the one that has work
left. A fit on two threads took three times as long beside two busy processes as on one. So we look at the load: it is
cheap, and how many threads there are changes no result. What our own threads do (`in_parallel`) needs no such care:
each of them has a part of the rows, and they meet only once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

VARIABLE = "TABLELESS_THREADS"
"""With a number here, torch has that many threads, whatever the load is."""

_PERIOD = 0.5  # seconds; counts of less than that are too coarse, since the kernel counts in hundredths of a second
_LITTLE = 0.4  # of a core; if others use no more than that, it is as good as idle
_IDLE = (3, 4)  # which of the kernel's counts of a core are not work: idle, and waiting for a disk
_COUNTS = 8  # later ones are parts of the first


class Load:
    """How many cores other processes leave to this one, by the kernel's counts since the last look."""

    def __init__(
        self,
        busy: Callable[[], float | None] | None = None,
        own: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._busy, self._own, self._clock = busy or _busy_seconds, own, clock
        self._number: int | None = None
        self._next = 0.0
        self._before: tuple[float, float, float] | None = None

    def idle_cores(self) -> int | None:
        """At least 1; None before there is anything to compare with, and where the system does not tell."""
        now = self._clock()
        if now >= self._next:
            self._next = now + _PERIOD
            self._look(now)
        return self._number

    def _look(self, now: float) -> None:
        busy = self._busy()
        if busy is None:
            return
        before, self._before = self._before, (now, busy, self._own())
        if before is None:
            return
        seconds, busy, own = (after - earlier for after, earlier in zip(self._before, before, strict=True))
        others = max(0.0, busy - own) / seconds
        self._number = max(1, int(len(_own_cores()) - others + _LITTLE))


@contextmanager
def on_idle_cores() -> Iterator[None]:
    """In here torch uses at most as many threads as cores are idle, and afterwards as many as before.

    The load is looked at when it is entered, twice a second at most. So what takes long enters it again for each of its
    steps. It holds for the thread that enters it. A number in `TABLELESS_THREADS`, in the environment, holds instead.
    """
    before, outer = torch.get_num_threads(), getattr(_here, "usual", None)
    usual = outer or before
    number = threads_asked_for() or min(usual, (_load.idle_cores() if usual > 1 else None) or usual)
    _here.usual = usual
    _set_threads(number)
    try:
        yield
    finally:
        _set_threads(before)
        _here.usual = outer


def usual_threads() -> int:
    """How many threads of our own may share out work, also inside of `on_idle_cores`."""
    return threads_asked_for() or getattr(_here, "usual", None) or torch.get_num_threads()


def _set_threads(number: int) -> None:
    if number != torch.get_num_threads():
        torch.set_num_threads(number)


def threads_asked_for() -> int | None:
    """What the environment asks for; None if it does not."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{VARIABLE} is {text!r}; give a number of threads, such as 2, or leave it out")
    return int(text)


def _busy_seconds() -> float | None:
    """How long the cores that we may use have worked since the start, for anybody; None where this is not known.

    What another virtual machine has taken from a core counts too: we could not have had it.
    """
    own = {f"cpu{core}" for core in _own_cores()}
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
        counts = [line.split()[1 : _COUNTS + 1] for line in lines if line.split(" ", 1)[0] in own]
        ticks = sum(int(count) for core in counts for place, count in enumerate(core) if place not in _IDLE)
        return ticks / os.sysconf("SC_CLK_TCK") if counts else None
    except (OSError, ValueError, AttributeError):  # not Linux, or a kernel that tells it in another way
        return None


def _own_cores() -> set[int]:
    """The cores that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


_load = Load()
_here = threading.local()  # `usual`: how many threads torch had in this thread before we took some
