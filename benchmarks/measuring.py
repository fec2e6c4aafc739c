"""How every benchmark here measures: tasks in turn within one run, the median and the spread, on named hardware."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch


def time_alternately(tasks: Mapping[str, Callable[[], object]], *, repetitions: int = 9) -> dict[str, list[float]]:
    """Seconds of each task, repetition by repetition in turn, so that a slow moment of the machine meets all alike."""
    for task in tasks.values():
        task()  # compile, fill caches
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repetitions):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(seconds: dict[str, list[float]], name: str, to: str) -> str:
    """The median ratio of two tasks within a repetition, and its range."""
    ratios = sorted(a / b for a, b in zip(seconds[name], seconds[to], strict=True))
    return f"{statistics.median(ratios):.3f} ({ratios[0]:.3f}–{ratios[-1]:.3f})"


def describe_machine() -> str:
    """The line without which no figure means anything."""
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
