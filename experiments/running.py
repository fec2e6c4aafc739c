"""Runs that are resumable: a run is a dictionary of settings, a finished one is a JSON line with its results.

Finished runs are skipped, so any command can be stopped and started again. Several runs go side by side, each on one
core: small models gain nothing from a second one.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tableless.files.whole import Line, append_line, read_lines

from .circumstances import circumstances

Settings = dict[str, Any]

RESULTS = Path(__file__).parent / "results"
# What a line has beside its settings: the circumstances (circumstances.py), and what came out.
_MEASURED = ("versions", "commit", "machine", "date", "seconds", "results", "error")


@dataclass(frozen=True)
class Experiment:
    """A table or figure: what is run for it, and how.

    `perform` turns settings into results and must be importable by name: it is called in another process.
    """

    name: str
    runs: Sequence[Settings]
    perform: Callable[[Settings], dict[str, Any]]

    @property
    def path(self) -> Path:
        """Where its lines are."""
        return RESULTS / f"{self.name}.jsonl"

    def lines(self) -> list[Line]:
        """The finished runs that the experiment asks for, in the order of the runs."""
        finished = {key(line): line for line in read_lines(self.path)}
        return [finished[key(settings)] for settings in self.runs if key(settings) in finished]

    def pending(self) -> list[Settings]:
        """The runs that are still to be done."""
        finished = {key(line) for line in read_lines(self.path)}
        return [settings for settings in self.runs if key(settings) not in finished]


def run_all(experiments: Sequence[Experiment], *, workers: int = 2, minutes: float | None = None) -> None:
    """Do what is pending and show how far it is; after `minutes` no further run is begun."""
    show = _Progress(experiments, workers=workers)
    stop_at = None if minutes is None else time.monotonic() + 60 * minutes
    queue = iter(first_seeds_first(experiments))
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_use_one_core) as pool:
        under_way: dict[Future[Line], Experiment] = {}

        def begin_next() -> None:
            if stop_at is not None and time.monotonic() > stop_at:
                return
            for experiment, settings in queue:
                under_way[pool.submit(_finish, experiment.perform, settings)] = experiment
                return

        for _ in range(workers):
            begin_next()
        while under_way:
            future = next(as_completed(under_way))
            experiment, line = under_way.pop(future), future.result()
            append_line(experiment.path, line)
            begin_next()
            show.finished(experiment, line)


def first_seeds_first(experiments: Iterable[Experiment]) -> list[tuple[Experiment, Settings]]:
    """What is pending, the first seed of everything before any second one: an early stop leaves few rows empty."""
    pending = [(experiment, settings) for experiment in experiments for settings in experiment.pending()]
    return sorted(pending, key=lambda each: seed_of(each[1]))


def seed_of(run: Settings | Line) -> int:
    """Which seed a run has, planned or finished; what is only measured once has none, and counts as a first one."""
    seed: int = run.get("train", run).get("seed", 0)
    return seed


def main(experiment: Experiment) -> None:
    """What `python -m experiments.NAME` does."""
    run_all([experiment])
    print(f"{len(experiment.lines())} of {len(experiment.runs)} runs are in {experiment.path}")


def key(line: Line) -> str:
    """What makes two runs the same run: their settings."""
    return json.dumps({name: value for name, value in line.items() if name not in _MEASURED}, sort_keys=True)


def _use_one_core() -> None:
    import torch

    torch.set_num_threads(1)


def _finish(perform: Callable[[Settings], dict[str, Any]], settings: Settings) -> Line:
    about = circumstances()  # before the run: the code may be edited while it goes on
    start = time.perf_counter()
    try:
        outcome: Line = {"results": perform(settings)}
    except ValueError as error:  # a budget too small for a scheme is a finding, not a reason to stop
        outcome = {"error": str(error)}
    return {**settings, **about, "seconds": round(time.perf_counter() - start, 1), **outcome}


class _Progress:
    """A line for each finished run: how far it is, and an estimate of the time left from what similar runs took."""

    def __init__(self, experiments: Sequence[Experiment], *, workers: int) -> None:
        self._experiments = experiments
        self._workers = workers

    def finished(self, experiment: Experiment, line: Line) -> None:
        """Tell of a run that has just ended."""
        pending = {each.name: len(each.pending()) for each in self._experiments}
        total = sum(len(each.runs) for each in self._experiments)
        left = sum(count * self._typical(name) for name, count in pending.items()) / self._workers
        what = line.get("error") or ", ".join(
            f"{name} {value:.4f}" for name, value in line["results"].items() if isinstance(value, float)
        )
        print(
            f"[{total - sum(pending.values())}/{total}, about {left / 60:.0f} min left] {experiment.name}: "
            f"{line['seconds']:.0f} s, {what[:100]}",
            file=sys.stderr,
            flush=True,
        )

    def _typical(self, name: str) -> float:
        """Seconds of a run of this experiment, from its finished ones; failing that, of any."""
        own = _seconds(each for each in self._experiments if each.name == name)
        return statistics.mean(own or _seconds(self._experiments) or [60.0])


def _seconds(experiments: Iterable[Experiment]) -> list[float]:
    lines = (line for experiment in experiments for line in experiment.lines())
    return [line["seconds"] for line in lines if "seconds" in line]
