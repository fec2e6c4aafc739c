"""How the library measures time: tasks in turn within one run, their median and range, and the machine's name."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch


@dataclass(frozen=True)
class Spread:
    """The median of some measurements, and the lowest and highest of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Of at least one measurement."""
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[0], ordered[-1])

    @classmethod
    def of_ratios(cls, values: Sequence[float], to: Sequence[float]) -> Spread:
        """Of two tasks timed in turn. Each ratio is taken within one repetition, when the machine was equally busy."""
        return cls.of(value / other for value, other in zip(values, to, strict=True))


def time_alternately(tasks: Mapping[str, Callable[[], object]], *, repetitions: int = 9) -> dict[str, list[float]]:
    """Seconds of each task in each repetition. Tasks take turns, so that a slow moment of the machine hits them all."""
    for task in tasks.values():
        task()  # compiles, fills caches
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repetitions):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            seconds[name].append(time.perf_counter() - start)
    return seconds


@contextmanager
def on_threads(number: int) -> Iterator[None]:
    """Let torch use this many threads, and afterwards as many as before."""
    if number < 1:
        raise ValueError(f"{number} threads were asked for; it must be at least 1")
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def describe_machine() -> str:
    """The processor and the versions that a measurement depends on, in one line."""
    model = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    wide = "AVX-512" if "AVX512" in torch.backends.cpu.get_cpu_capability() else torch.backends.cpu.get_cpu_capability()
    return (
        f"{model} ({wide}), {torch.get_num_threads()} thread(s), Python {platform.python_version()}, "
        f"torch {torch.__version__}, numpy {np.__version__}"
    )


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []
