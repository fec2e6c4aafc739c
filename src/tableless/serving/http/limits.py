"""What is refused before any work is done for it: strangers, bodies too large or too slow, more than can be borne.

Which names the server answers under: pages of other sites must not reach it through a visitor's browser.

A page can give its own name the address 127.0.0.1 (DNS rebinding) and then read what a server answers there. The
`Host` header gives it away: it still has the page's name. A page that asks across sites shows its own in `Origin`.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
import traceback
from collections.abc import Iterable, Sequence

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .metrics import Metrics
from .server import Settings

OPEN_TO_ALL = frozenset({"/", "/healthz", "/docs", "/openapi.json"})
"""Paths that need no token, beside those under /page/: a browser can't send one before it has the page."""
ALWAYS_ANSWERED = frozenset({"/healthz", "/metrics"})
"""Paths that are answered under any load: whoever watches the server must not take it for dead."""

_log = logging.getLogger("tableless.serving")


class Refusal(Exception):
    """An answer other than the one asked for."""

    def __init__(self, status: int, sentence: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(sentence)
        self.status = status
        self.body = json.dumps({"detail": sentence}).encode()
        self.headers = headers


class Limits:
    """ASGI middleware. It reads the body itself, so that nothing beyond it has to mind slow or endless ones.

    A request that is still sending its body holds no place among those being answered: slow clients can't keep the
    others out.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings, metrics: Metrics) -> None:
        self.app = app
        self._settings = settings
        self._metrics = metrics
        self._token = settings.token.encode() if settings.token else None
        self._in_flight = 0
        self._buffered = 0  # bytes of bodies that are not complete yet
        self._max_buffered = settings.max_body_bytes * settings.max_in_flight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse with one sentence."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        has_started = False

        async def note_start(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._answer_in_time(scope, receive, note_start)
        except Refusal as refusal:
            if not has_started:
                await _send_refusal(send, refusal)
        except Exception as error:  # its message may hold what the caller sent: neither told nor logged
            place = traceback.extract_tb(error.__traceback__)[-1]
            _log.error("%s in %s, %s line %d", type(error).__name__, place.name, place.filename, place.lineno or 0)
            if not has_started:  # else uvicorn closes the connection: the caller sees that something is missing
                await _send_refusal(send, Refusal(500, "The server failed to answer; its log says where."))

    async def _answer_in_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._refuse_foreign_pages(scope)
        self._refuse_strangers(scope)
        limit = self._settings.reload_time_limit if scope["path"] == "/reload" else self._settings.time_limit
        is_read = False
        with anyio.move_on_after(limit) as time:
            body = await self._read_body(scope, receive)
            is_read = True
            if body is not None:
                await self._answer(scope, _replay(body, receive), send)
        if time.cancelled_caught and is_read:
            raise Refusal(504, f"There was no answer within {limit:g} seconds; ask for less, or later.", _CLOSE)
        if time.cancelled_caught:
            raise Refusal(408, f"The body did not arrive within {limit:g} seconds.", _CLOSE)

    def _refuse_foreign_pages(self, scope: Scope) -> None:
        sentence = why_foreign(scope["headers"], self._settings.allowed_hosts)
        if sentence is not None:
            raise Refusal(403, sentence)

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


_CLOSE = (b"connection", b"close")  # nobody is going to read the rest of the body


def _overloaded() -> Refusal:
    return Refusal(503, "More is being asked than can be answered; try again in a second.", (b"retry-after", b"1"))


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body as one message, and then whatever follows."""
    is_given = False

    async def replayed() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


async def _send_refusal(send: Send, refusal: Refusal) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(refusal.body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": [*headers, *refusal.headers]})
    await send({"type": "http.response.body", "body": refusal.body})


Headers = Sequence[tuple[bytes, bytes]]

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Is an address to listen on reached from this machine alone?"""
    try:
        return ipaddress.ip_address(host_name(host)).is_loopback
    except ValueError:
        return host_name(host) == "localhost"


def allowed_names(host: str, allowed: Iterable[str] = ()) -> frozenset[str] | None:
    """The names to answer under when listening on `host`; None: any.

    On loopback these are its own names; elsewhere nobody knows them, so any will do until some are given (`allowed`).
    """
    given = frozenset(map(_require_name, allowed))
    return _LOOPBACK | {host_name(host)} | given if given or is_loopback(host) else None


def why_foreign(headers: Headers, names: frozenset[str] | None) -> str | None:
    """A sentence for a request that comes by a foreign name or from a foreign page; None: all is well."""
    hosts = {host_name(value.decode("latin-1")) for name, value in headers if name == b"host"}
    origins = {host_name(value.decode("latin-1").rpartition("://")[2]) for name, value in headers if name == b"origin"}
    if names is not None and not hosts <= names:
        return "The server does not answer under the name in `Host`; start it with `--allowed-host NAME` if it should."
    if not origins <= hosts | (names or frozenset()):
        return "Pages of other sites may not ask; start the server with `--allowed-host NAME`, their host, if they may."
    return None


def host_name(text: str) -> str:
    """`Localhost:8000` -> localhost, `[::1]:80` -> ::1."""
    text = text.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text if text.count(":") > 1 else text.partition(":")[0].rstrip(".")


def _require_name(text: str) -> str:
    if not host_name(text) or "/" in text or "*" in text:
        raise ValueError(f"--allowed-host is {text!r}; it must be a host's name or address, such as api.example.org")
    return host_name(text)
