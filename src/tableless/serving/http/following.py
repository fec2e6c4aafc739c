"""Following a run that is learned from a stream: each new checkpoint is taken over, and what it says is measured."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ...recommender.run_directory import RunDirectory
from .refusals import Refusal
from .served_model import CurrentModel

_PAUSE = 1.0  # seconds between two looks at the directory
_log = logging.getLogger("tableless.serving")

_FIGURES = {
    "auc": "AUC of all actions of the stream, each before it was learned.",
    "recent_auc": "AUC of the latest actions before they were learned.",
    "popular_auc": "AUC of the latest actions against items drawn by popularity.",
    "actions": "Actions learned.",
}


def following(current: CurrentModel) -> Callable[[FastAPI], Any]:
    """The life of an application that takes new checkpoints over: requests in flight keep the model they began with."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(_follow(current))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    return lifespan


async def _follow(current: CurrentModel) -> None:
    """Look at the weights again and again. A checkpoint that cannot be loaded is tried again when it changes."""
    loaded = _stamp(current.directory)
    while True:
        await asyncio.sleep(_PAUSE)
        stamp = _stamp(current.directory)
        if stamp in (None, loaded):
            continue
        try:
            await current.reload(None)
            loaded = stamp  # as it was before: if it has changed since, it is loaded once more
        except Refusal as refusal:
            if refusal.status == 422:  # and not 409, another reload
                loaded = stamp
        except Exception:
            _log.exception("a checkpoint was not taken over")


def _stamp(directory: Path) -> tuple[int, int, int] | None:
    """What is another one with each checkpoint; None while there is none."""
    files = RunDirectory(directory)
    try:
        found = files.weights.stat()
        files.config.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class StreamFigures(Collector):
    """What the checkpoint in a directory says of its stream, and how old it is."""

    def __init__(self, directory: Callable[[], Path]) -> None:
        self._directory = directory

    def collect(self) -> Iterator[Metric]:
        """Nothing, where the run is not from a stream of events."""
        try:
            results = RunDirectory(self._directory()).read_results()
        except (OSError, ValueError):
            return
        if "written" not in results:
            return
        age = time.time() - results["written"]
        yield GaugeMetricFamily("tableless_stream_lag_seconds", "Since the checkpoint was written.", value=age)
        for name, says in _FIGURES.items():
            if results.get(name) is not None:
                yield GaugeMetricFamily(f"tableless_stream_{name}", says, value=results[name])
        for name, label in (("evictions", "side"), ("events", "kind")):
            family = GaugeMetricFamily(f"tableless_stream_{name}", f"{name.title()} so far.", labels=[label])
            for key, count in results.get(name, {}).items():
                family.add_metric([key], count)
            yield family

    def describe(self) -> Iterable[Metric]:
        """Nothing is read at registration."""
        return []
