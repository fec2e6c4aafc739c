"""Where every connection and request enters: what is refused before any work is done for it, and what is counted.

Refused are connections that are held open for nothing, callers without the token, pages of other sites, bodies that are
too large or too slow, and more requests than can be answered.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
import traceback

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..settings import ServerSettings
from .metrics import Metrics
from .refusals import Refusal, why_foreign

OPEN_TO_ALL = frozenset({"/", "/healthz", "/docs", "/openapi.json"})
"""Paths that need no token, beside those under /page/: a browser can't send one before it has the page."""
ALWAYS_ANSWERED = frozenset({"/healthz", "/metrics"})
"""Paths that are answered under any load: a program that watches the server must not take it for dead."""
MAX_HEAD_BYTES = 64 * 1024
_LEAST_PROGRESS = 64 * 1024  # bytes of a long answer that a slow reader must have taken when time is up, to get more
_CLOSE = (b"connection", b"close")  # nobody is going to read the rest of the body

_log = logging.getLogger("tableless.serving")


class Limits:
    """ASGI middleware. It reads the body itself, so that the application never waits for slow or endless ones.

    A request that is still sending its body holds no place among those being answered: slow clients can't keep the
    others out. Every answer is counted, refusals too, under its route and never under its raw path.
    """

    def __init__(self, app: ASGIApp, *, settings: ServerSettings, metrics: Metrics, routes: frozenset[str]) -> None:
        self.app = app
        self._settings = settings
        self._metrics = metrics
        self._routes = routes
        self._token = settings.token.encode() if settings.token else None
        self._in_flight = 0
        self._buffered = 0  # bytes of bodies that are not complete yet
        self._max_buffered = settings.max_body_bytes * settings.max_in_flight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse with one sentence; then count it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._answer_in_time(scope, receive, note_status)
        except Refusal as refusal:
            if not status:
                await refusal.send(note_status)
        except Exception as error:  # its message may hold what the caller sent: it is neither told nor logged
            place = traceback.extract_tb(error.__traceback__)[-1]
            _log.error("%s in %s, %s line %d", type(error).__name__, place.name, place.filename, place.lineno or 0)
            if not status:  # else uvicorn closes the connection: the caller sees that something is missing
                await Refusal(500, "The server failed to answer; its log says where.").send(note_status)
        finally:
            if status:  # else the caller went away
                route = scope["path"] if scope["path"] in self._routes else "other"
                seconds = time.perf_counter() - start
                self._metrics.count_request(route, status, seconds)

    async def _answer_in_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        foreign = why_foreign(scope["headers"], self._settings.allowed_hosts)
        if foreign is not None:
            raise Refusal(403, foreign)
        self._refuse_strangers(scope)
        limit = self._settings.reload_time_limit if scope["path"] == "/reload" else self._settings.time_limit
        is_read = False
        with anyio.move_on_after(limit) as clock:
            body = await self._read_body(scope, receive)
            is_read = True
            if body is not None:
                await self._answer(scope, _replay(body, receive), send)
        if clock.cancelled_caught and is_read:
            raise Refusal(504, f"There was no answer within {limit:g} seconds; ask for less, or later.", _CLOSE)
        if clock.cancelled_caught:
            raise Refusal(408, f"The body did not arrive within {limit:g} seconds.", _CLOSE)

    def _refuse_strangers(self, scope: Scope) -> None:
        path = scope["path"]
        if self._token is None or path in OPEN_TO_ALL or path.startswith("/page/"):
            return
        shown = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        kind, _, token = shown.partition(b" ")
        if not hmac.compare_digest(token, self._token) or kind.lower() != b"bearer":
            raise Refusal(401, "Send the header `Authorization: Bearer TOKEN`.", (b"www-authenticate", b"Bearer"))

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None if the caller went away."""
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        self._refuse_large(int(announced) if announced.isdigit() and len(announced) < 20 else 0)
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body"):  # as nearly always
            self._refuse_large(len(message["body"]))
            return bytes(message["body"])
        chunks, size = [], 0
        try:
            while message["type"] == "http.request":
                chunks.append(message["body"])
                size += len(message["body"])
                self._buffered += len(message["body"])
                self._refuse_large(size)
                if self._buffered > self._max_buffered:
                    raise _overloaded()
                if not message.get("more_body"):
                    return b"".join(chunks)
                message = await receive()
            return None
        finally:
            self._buffered -= size

    def _refuse_large(self, size: int) -> None:
        if size > self._settings.max_body_bytes:
            limit = self._settings.max_body_bytes
            raise Refusal(413, f"A body may have {limit:,} bytes at most; send fewer ids at a time.", _CLOSE)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in ALWAYS_ANSWERED:
            await self.app(scope, receive, send)
            return
        if self._in_flight >= self._settings.max_in_flight:
            raise _overloaded()
        self._in_flight += 1
        self._metrics.in_flight.set(self._in_flight)
        try:
            await self.app(scope, receive, send)
        finally:
            self._in_flight -= 1
            self._metrics.in_flight.set(self._in_flight)


def _overloaded() -> Refusal:
    return Refusal(503, "More is being asked than can be answered; try again in a second.", (b"retry-after", b"1"))


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body as one message, and then the messages that follow."""
    is_given = False

    async def replayed() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


class GuardedConnection(HttpToolsProtocol):
    """uvicorn's protocol. It closes a connection that sends a request's head too slowly, or too large a one.

    uvicorn alone waits for the head of a request for ever, keeps headers of any size, and lets an answer that nobody
    reads lie in memory.
    """

    settings = ServerSettings()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close the connection at once if there are too many."""
        super().connection_made(transport)
        self._head_bytes = 0
        self._is_reading_head = True
        self._unread = 0
        self._end: asyncio.TimerHandle | None = None
        if len(self.connections) > self.settings.max_connections:
            transport.abort()
        else:
            self._start_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock, whatever the reason."""
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
        self._end = self.loop.call_later(self.settings.head_time_limit, self._give_up)

    def _stop_waiting(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def _give_up(self) -> None:
        if self._unread and self.transport.get_write_buffer_size() <= self._unread - _LEAST_PROGRESS:
            self._start_waiting()
        else:
            self.transport.abort()


def guarded(settings: ServerSettings) -> type[GuardedConnection]:
    """The class whose objects are uvicorn's connections, with the limits of these settings."""
    return type("GuardedConnection", (GuardedConnection,), {"settings": settings})
