"""The model that the server answers with. Requests that arrive together are computed together.

Another run can take its place, and no request notices.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ...embedding.ids import to_ids
from ...kernels.resources import give_memory_back
from ...recommender.run_directory import Side
from ..model import TrainedModel
from ..side_vectors import SideVectors, UnknownIdError
from .metrics import Metrics
from .refusals import Refusal

Ids: TypeAlias = NDArray[np.int64]
Vectors: TypeAlias = NDArray[np.float32]

_Result = TypeVar("_Result")

LARGEST_BATCH = 8192
"""Ids computed at once. A larger batch would not be quicker for each id, and small requests would wait longer."""


class ServedModel:
    """A model and its batchers. A request keeps the one that it began with, also if another is loaded meanwhile."""

    def __init__(self, model: TrainedModel, *, metrics: Metrics, threads: ThreadPoolExecutor) -> None:
        self.model = model
        self._threads = threads
        self._batchers: dict[Side, Batcher] = {
            side: Batcher(
                functools.partial(_embed, model.vectors[side]),
                name=side,
                on_batch=functools.partial(metrics.count_batch, side),
            )
            for side in ("user", "item")
        }

    async def embed(self, ids: Ids, side: Side) -> Vectors:
        """Int64 [n] -> float32 [n, dim], computed together with other requests."""
        try:
            return await self._batchers[side].submit(ids)
        except ValueError as error:
            raise self._unknown(error) from None

    async def ask(self, question: Callable[[TrainedModel], _Result]) -> _Result:
        """Ask the model anything else, in a thread. A ValueError of the model is answered as 404, not found."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, question, self.model)
        except ValueError as error:
            raise self._unknown(error) from None

    def ids(self, side: Side, raw: list[int] | list[str]) -> Ids:
        """Raw ids of a checked body -> int64 [n]."""
        if not raw or isinstance(raw[0], int):  # the usual case; `to_ids` would check each of them once more
            return np.array(raw, np.int64)
        self.refuse_other_kind(side, raw)
        return to_ids(raw).numpy()

    def parse(self, side: Side, text: str) -> int | str:
        """A raw id that is part of an address, in the kind that the data has."""
        try:
            raw = self.model.parse(side, text)
        except ValueError:
            raise Refusal(404, f"There is no such {side}: {side} ids are integers in this data.") from None
        if isinstance(raw, int) and not -(2**63) <= raw < 2**63:
            raise Refusal(404, f"There is no such {side}: integers must lie in [-2^63, 2^63).")
        return raw

    def refuse_other_kind(self, side: Side, raw: Sequence[int | str]) -> None:
        """Refuse strings where the data has integers; an integer is an id everywhere (see `to_ids`)."""
        if raw and isinstance(raw[0], str) and self.model.config["kinds"][side] == "integer":
            raise Refusal(404, f"There is no such {side}: {side} ids are integers in this data, and this is a string.")

    def close(self) -> None:
        """Answer what was asked, and end."""
        for batcher in self._batchers.values():
            batcher.close()

    def _unknown(self, error: ValueError) -> Refusal:
        message = error.without_id if isinstance(error, UnknownIdError) else str(error)
        return Refusal(404, message.replace(str(self.model.directory), "this run"))


def _embed(vectors: SideVectors, ids: Ids) -> Vectors:
    return vectors(torch.from_numpy(ids)).numpy()


class Batcher:
    """Hands ids to a thread of its own, which takes everything that has come in while it was busy as one batch.

    A request that finds the thread idle is computed at once. Requests that were given up meanwhile are not computed.
    A request with an error (an id that a table has no row for) fails alone; the others of its batch are answered.
    """

    def __init__(self, compute: Callable[[Ids], Vectors], *, name: str, on_batch: Callable[[int], None]) -> None:
        self._compute = compute
        self._on_batch = on_batch
        self._waiting: SimpleQueue[_Request | None] = SimpleQueue()
        threading.Thread(target=self._work, name=f"batches of {name}s", daemon=True).start()

    def submit(self, ids: Ids) -> asyncio.Future[Vectors]:
        """Int64 [n] -> float32 [n, dim], in time. To be called in the event loop."""
        request = _Request(ids)
        self._waiting.put(request)
        return request.answer

    def close(self) -> None:
        """End the thread once everything that was submitted is answered."""
        self._waiting.put(None)

    def _work(self) -> None:
        is_open = True
        while is_open:
            requests, is_open = self._next_batch()
            requests = [request for request in requests if not request.answer.cancelled()]
            if requests:
                self._answer(requests)
            requests.clear()  # nothing is kept alive while the next batch is awaited

    def _next_batch(self) -> tuple[list[_Request], bool]:
        """The requests that are waiting, at least one. False: the batcher is closed, and no more will come."""
        requests: list[_Request] = []
        request, count = self._waiting.get(), 0
        while request is not None:
            requests.append(request)
            count += len(request.ids)
            if count >= LARGEST_BATCH:
                return requests, True
            try:
                request = self._waiting.get_nowait()
            except Empty:
                return requests, True
        return requests, False

    def _answer(self, requests: list[_Request]) -> None:
        ids = np.concatenate([request.ids for request in requests])
        self._on_batch(len(ids))
        try:
            vectors = self._compute(ids)
        except Exception as error:
            if len(requests) == 1:
                requests[0].tell(error)
                return
            for request in requests:
                self._answer([request])
            return
        start = 0
        for request in requests:
            request.tell(vectors[start : start + len(request.ids)])
            start += len(request.ids)


class _Request:
    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Vectors] = self._loop.create_future()

    def tell(self, outcome: Vectors | Exception) -> None:
        """From the batcher's thread."""
        try:
            self._loop.call_soon_threadsafe(self._set, outcome)
        except RuntimeError:  # the loop was closed: the server has stopped, and nobody waits
            return

    def _set(self, outcome: Any) -> None:
        if self.answer.done():  # given up
            return
        if isinstance(outcome, Exception):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


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
        metrics.watch_hot_ids(lambda: self.served.model.hot_counts)

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
