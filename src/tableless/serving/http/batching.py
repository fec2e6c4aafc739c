"""Requests that arrive together are computed together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ids: TypeAlias = NDArray[np.int64]
Vectors: TypeAlias = NDArray[np.float32]

LARGEST_BATCH = 8192
"""Ids computed at once: more gain nothing, and those who ask for a few would wait for those who ask for many."""


class Batcher:
    """Hands ids to a thread of its own, which takes everything that has come in while it was busy as one batch.

    Nobody waits for company: an idle thread starts at once. Ids of requests that were given up meanwhile are not
    computed. A request at fault (an id that a table has no row for) fails alone.
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
        """What is waiting, at least one request; False: nothing will follow."""
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
