"""How a request is refused: with a status and one sentence, which repeats nothing of the request.

Refused are also pages of other sites that try to reach the server through a visitor's browser. A page can give its own
name the address 127.0.0.1 (DNS rebinding) and then read what a server answers there. The `Host` header shows this: it
still has the page's name. A page that asks across sites shows its own name in `Origin`.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ValidationError
from starlette.types import Send


class Refusal(Exception):
    """An answer other than the one asked for."""

    def __init__(self, status: int, sentence: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(sentence)
        self.status = status
        self.body = json.dumps({"detail": sentence}).encode()
        self.headers = headers

    async def send(self, send: Send) -> None:
        """Answer with it."""
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(self.body)).encode())]
        await send({"type": "http.response.start", "status": self.status, "headers": [*headers, *self.headers]})
        await send({"type": "http.response.body", "body": self.body})


class Problem(BaseModel):
    """Every refusal looks like this."""

    detail: str


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route, for its OpenAPI entry."""
    return {status: {"model": Problem, "description": _MEANING[status]} for status in statuses}


_MEANING = {
    400: "The body can't be read.",
    401: "The token is missing or wrong.",
    403: "Not allowed here.",
    404: "There is no such thing, or this model can't know it.",
    408: "The body took too long to arrive.",
    409: "Another reload is under way.",
    413: "Too many ids, or too large a body.",
    415: "The body's Content-Type is neither JSON nor octet-stream.",
    422: "The request says something that is not allowed.",
    500: "The server is at fault.",
    503: "More is being asked than can be answered; try again after the seconds in Retry-After.",
    504: "The time limit passed.",
}


async def explain(request: Request, error: Exception) -> Response:
    """What is wrong with a request, in one sentence that repeats nothing of it."""
    assert isinstance(error, RequestValidationError | ValidationError)
    return JSONResponse({"detail": _sentence(error.errors()[0])}, status_code=422)


def _sentence(error: Any) -> str:
    if error["type"] == "json_invalid":
        return "The body is not valid JSON."
    if error["type"] == "extra_forbidden":  # its place is a name that the caller made up
        return "The body has a field that is not known here."
    place = " ".join(str(part) for part in error["loc"] if part not in ("body", "query"))
    message = error["msg"].removeprefix("Value error, ")
    return f"{place}: {message}." if place else f"The body: {message}."


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

    On loopback these are its own names. Elsewhere they are not known, so that any name is answered until some are
    given (`allowed`).
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
