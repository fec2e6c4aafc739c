"""Connections that can't be held open for nothing: uvicorn's protocol, with an end to its patience.

uvicorn waits for the head of a request for ever, keeps headers of any size, and lets an answer that nobody reads lie in
memory. Bodies are seen to by `Limits`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
_LEAST_PROGRESS = 64 * 1024  # bytes of a long answer that a slow reader must have taken when time is up, to get more


class GuardedConnection(HttpToolsProtocol):
    """Closes a connection that has not sent a request's head in time, or sends too large a one."""

    head_time_limit = 10.0
    max_connections = 4096

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Beyond the largest number of connections, the newest goes."""
        super().connection_made(transport)
        self._head_bytes = 0
        self._is_reading_head = True
        self._unread = 0
        self._end: asyncio.TimerHandle | None = None
        if len(self.connections) > self.max_connections:
            transport.abort()
        else:
            self._start_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """However it ends, the clock stops."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A head may come in pieces; all of them count."""
        was_reading_head = self._is_reading_head
        super().data_received(data)
        if was_reading_head and self._is_reading_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        """The first bytes of a request."""
        super().on_message_begin()
        self._is_reading_head, self._head_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Trailers, which come after the body, are not taken for headers."""
        if self._is_reading_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """From here on `Limits` watches the time."""
        self._is_reading_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for another request, unless it is here already."""
        is_next_here = bool(self.pipeline)
        super().on_response_complete()
        if not is_next_here:
            self._start_waiting()

    def _start_waiting(self) -> None:
        self._stop_waiting()
        self._unread = self.transport.get_write_buffer_size()
        self._end = self.loop.call_later(self.head_time_limit, self._give_up)

    def _stop_waiting(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def _give_up(self) -> None:
        if self._unread and self.transport.get_write_buffer_size() <= self._unread - _LEAST_PROGRESS:
            self._start_waiting()
        else:
            self.transport.abort()


def guarded(*, head_time_limit: float, max_connections: int) -> type[GuardedConnection]:
    """The class that uvicorn makes connections of."""
    attributes: dict[str, Any] = {"head_time_limit": head_time_limit, "max_connections": max_connections}
    return type("GuardedConnection", (GuardedConnection,), attributes)
