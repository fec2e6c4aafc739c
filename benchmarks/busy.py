"""How much slower are training and serving while other processes are busy, one for each core?

With as many threads as there are cores. If the scheduler is fair, a process with one thread has two thirds of a core
beside two others on two cores, so 1.5 × is the least for one thread, and 2 × for two that never wait for each other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import tableless
from benchmarks.measuring import Row, Spread, at_most, figure, not_measured, on_threads, show
from tableless import DeepHashEmbedding, TrainConfig, distil
from tableless.embedding import PoorFitWarning
from tableless.serving import FastEmbedding

TARGET = 2.2
ALONE_TARGET = 1.1
"""More threads are never slower than one, but for the noise of a measurement."""

# It ends by itself when the process that has started it is gone.
_BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(10_000))"


@dataclass(frozen=True)
class _Times:
    """Seconds of a task in each repetition."""

    quiet: Sequence[float]
    busy: Sequence[float]
    quiet_alone: Sequence[float]  # with one thread
    busy_alone: Sequence[float]


def measure(
    *,
    data: str = "world:users=1000,items=600,actions=30000",
    num_rows: int = 1500,
    visits: int = 25,
    width: int = 111,
    num_ids: int = 40_000,
    repetitions: int = 3,
    settle: float = 1.2,
) -> list[Row]:
    """Each task is done for `settle` seconds before it is timed: by then the load has been looked at twice."""
    cores = os.cpu_count() or 1
    if cores < 2:
        return [not_measured("training and serving beside busy processes", "there is one core", f"≤ {TARGET} ×")]
    embed = FastEmbedding(DeepHashEmbedding(32, width=width, num_hashes=64).eval())
    ids = torch.randint(-(2**62), 2**62, (num_ids,), generator=torch.Generator().manual_seed(0))
    rows = torch.randn(num_rows, 32, generator=torch.Generator().manual_seed(1))
    fitted = DeepHashEmbedding.from_budget("1/4 parameters", embedding_dim=32, vocab_size=num_rows)
    tasks: dict[str, Callable[[], object]] = {
        "fit of dhe to a table": lambda: _fit(fitted, rows, visits),
        "epoch of dhe in a small world, measured": lambda: _train(data),
    }
    for batch_size in (1, 100, 4096):
        tasks[f"FastEmbedding, batch {batch_size:,}"] = partial(_embed, embed, ids[: 1000 * batch_size], batch_size)
    results = []
    for name, task in tasks.items():
        results += _rows(name, _timed(task, cores, repetitions, settle), cores)
    return results


def _rows(name: str, times: _Times, cores: int) -> list[Row]:
    beside, on = f"beside {cores} busy processes", f"{cores} threads"
    return [
        at_most(f"{name}, {on}: {beside}, against quiet", Spread.of_ratios(times.busy, times.quiet), TARGET, " ×"),
        at_most(
            f"{name}: {on} against one, quiet", Spread.of_ratios(times.quiet, times.quiet_alone), ALONE_TARGET, " ×"
        ),
        at_most(
            f"{name}: {on} against one, {beside}", Spread.of_ratios(times.busy, times.busy_alone), ALONE_TARGET, " ×"
        ),
        figure(f"{name}, {on}, quiet", Spread.of(times.quiet), " s"),
    ]


def _timed(task: Callable[[], object], cores: int, repetitions: int, settle: float) -> _Times:
    times: tuple[list[float], ...] = ([], [], [], [])
    for _ in range(repetitions):
        for number, threads in enumerate((cores, 1)):
            with on_threads(threads):
                times[2 * number].append(_settled(task, settle))
        with _busy_processes(cores):
            for number, threads in enumerate((cores, 1)):
                with on_threads(threads):
                    times[2 * number + 1].append(_settled(task, settle))
    return _Times(quiet=times[0], busy=times[1], quiet_alone=times[2], busy_alone=times[3])


def _settled(task: Callable[[], object], settle: float) -> float:
    end = time.perf_counter() + settle
    task()
    while time.perf_counter() < end:
        task()
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


@contextmanager
def _busy_processes(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", _BUSY, str(os.getpid())]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _embed(embed: FastEmbedding, ids: Tensor, batch_size: int) -> None:
    for batch in torch.split(ids, batch_size):
        embed(batch)


def _fit(scheme: DeepHashEmbedding, rows: Tensor, visits: int) -> None:
    with warnings.catch_warnings():  # so few visits fit badly
        warnings.simplefilter("ignore", PoorFitWarning)
        distil(rows, scheme, visits=visits, progress=False)


def _train(data: str) -> None:
    config = TrainConfig(epochs=1, recipe="paper")
    model: dict[str, Any] = {"scheme": "dhe", "budget": "1/4 parameters", "options": {"num_hashes": 64}}
    tableless.train(data, **model, config=config, progress=lambda event: None)


if __name__ == "__main__":
    show(measure())
