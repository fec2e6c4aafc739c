"""What a caller may ask for, and how much of it.

Connections that can't be held open for nothing: uvicorn's protocol, with an end to its patience.

uvicorn waits for the head of a request for ever, keeps headers of any size, and lets an answer that nobody reads lie in
memory. Bodies are seen to by `Limits`.


uvicorn around the application: one process, a graceful stop, and nothing of a request in the log."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..settings import ServerSettings

Settings = ServerSettings

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


def serve(app: FastAPI, *, host: str, port: int, settings: Settings, on_ready: Callable[[str], None]) -> None:
    """Answer until SIGTERM or Ctrl+C: then accept nothing more, finish what was begun, and return.

    Port 0 takes any that is free; `on_ready` is told the address.
    """
    listener = _listen(host, port)
    _allow_many_connections()
    config = uvicorn.Config(
        app,
        http=guarded(head_time_limit=settings.head_time_limit, max_connections=settings.max_connections),
        ws="none",
        access_log=False,  # its lines would hold ids
        log_level="warning",
        server_header=False,
        timeout_keep_alive=math.ceil(settings.head_time_limit),
        timeout_graceful_shutdown=math.ceil(settings.time_limit) + 1,
    )
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again when it has stopped
    try:
        on_ready(f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}")
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # raised again likewise
    finally:
        signal.signal(signal.SIGTERM, before)
        listener.close()


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        if os.name != "nt":  # on Windows it would let two programs listen on one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)  # connections are taken from here on, and answered as soon as uvicorn is up
    except OSError as error:
        listener.close()
        raise OSError(f"{host}:{port} can't be listened on ({error.strerror}); give another --host or --port") from None
    except OverflowError:
        listener.close()
        raise ValueError(f"--port is {port}; it must be from 0 to 65535") from None
    return listener


def _allow_many_connections() -> None:
    """Each is a file; the usual 1024 would be few. Windows has no such limit, and no module for it."""
    try:
        import resource
    except ImportError:
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS calls it endless, and refuses that number
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
