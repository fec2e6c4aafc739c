"""How a request is refused: with a status and one sentence, which repeats nothing of the request."""

from __future__ import annotations

import json
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
