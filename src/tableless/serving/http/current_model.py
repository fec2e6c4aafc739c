"""The model that answers at the moment. Another run can take its place, and no request notices."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ...kernels.resources import give_memory_back
from ..model import TrainedModel
from .metrics import Metrics
from .refusals import Refusal
from .served_model import ServedModel

_log = logging.getLogger("tableless.serving")


class CurrentModel:
    """Loads runs, and holds the one that new requests are answered by.

    Only the directory of the first run and those beside it can be loaded: callers can't reach the rest of the disk.
    """

    def __init__(
        self, directory: Path, load: Callable[[Path], TrainedModel], *, metrics: Metrics, threads: ThreadPoolExecutor
    ) -> None:
        self.directory = directory.resolve()
        self.root = self.directory.parent
        self._load = load
        self._metrics = metrics
        self._threads = threads
        self._is_loading = False
        self.served = self._serve(self.directory)
        metrics.watch_hot_ids(lambda: (self.served.model.hot_ids_hits, self.served.model.hot_ids_asked))

    async def reload(self, run: str | None) -> None:
        """Load a run (None: the same directory again); requests in flight finish with the model they began with."""
        directory = self.directory if run is None else self.find(run)
        if self._is_loading:
            raise Refusal(409, "Another reload is under way.")
        self._is_loading = True
        loading = asyncio.get_running_loop().run_in_executor(None, self._serve, directory)
        loading.add_done_callback(lambda done: self._take_over(directory, done))  # also if the caller has gone
        try:
            await asyncio.shield(loading)
        except Exception as error:  # a broken file can lead to any error
            # The message is about files of this machine: it may be logged, but not be sent to the caller.
            _log.warning("a run was not loaded: %s: %r", type(error).__name__, str(error))
            raise Refusal(
                422, "That run can't be loaded, as the log explains; the one before is still served."
            ) from None
        await asyncio.get_running_loop().run_in_executor(self._threads, _give_memory_back)

    def find(self, run: str) -> Path:
        """The directory that a caller names, seen from the root. Links are followed before anything is compared."""
        try:
            directory = (self.root / run).resolve()
            is_within = directory != self.root and directory.is_relative_to(self.root)
            is_found = is_within and directory.is_dir()
        except (ValueError, OSError, RuntimeError):  # a NUL, too long a name, links in a circle
            raise Refusal(422, "`run` can't be the name of a directory.") from None
        if not is_within:
            raise Refusal(403, "Only runs in the same directory as the one that is served can be loaded.")
        if not is_found:
            raise Refusal(404, "There is no such run.")
        return directory

    def _serve(self, directory: Path) -> ServedModel:
        model = self._load(directory)
        model.prepare()
        return ServedModel(model, metrics=self._metrics, threads=self._threads)

    def _take_over(self, directory: Path, loading: asyncio.Future[ServedModel]) -> None:
        self._is_loading = False
        if loading.cancelled() or loading.exception() is not None:
            return
        before, self.served = self.served, loading.result()
        self.directory = directory
        before.close()
        self._metrics.reloads.inc()


def _give_memory_back() -> None:
    """Free the model that was replaced now; Python alone would do so when it next looks for cycles of objects."""
    gc.collect()
    give_memory_back()  # glibc would keep what was freed for later
