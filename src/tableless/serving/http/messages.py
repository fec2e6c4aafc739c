"""What is sent and answered, as OpenAPI and pydantic see it.

Answers as bytes: JSON without NaN, errors as one sentence that repeats nothing of the request."""

from __future__ import annotations

import json
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from ...recommender.run_directory import Side
from .batching import Vectors
from .limits import Refusal
from .raw_ids import RawId, RawIds

MAX_COUNT = 1000
MAX_POINTS = 10_000

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class EmbedBody(_Body):
    """Ids to be embedded."""

    ids: RawIds
    side: Side | None = None


class ScoreBody(_Body):
    """As many users as items, or one user for all items."""

    users: RawIds
    items: RawIds


class RecommendBody(_Body):
    """Whom to recommend something to."""

    user: RawId
    count: Count = 10
    exclude_seen: bool = True
    exact: bool | None = None


class ReloadBody(_Body):
    """The run to go on with: a directory beside the one being served, or null for that one, read again."""

    run: Annotated[str, Field(min_length=1, max_length=1000)] | None = None


class VectorsAnswer(BaseModel):
    """Vectors in the order of the ids."""

    vectors: list[list[float]]
    dim: int


class ScoresAnswer(BaseModel):
    """Logits, one for each pair."""

    scores: list[float]


class RecommendedItem(BaseModel):
    """An item and its logit."""

    item: int | str
    score: float
    title: str | None


class RecommendAnswer(BaseModel):
    """The best first."""

    user: int | str
    items: list[RecommendedItem]


class NeighborItem(BaseModel):
    """An id and its cosine."""

    id: int | str
    similarity: float
    title: str | None


class NeighborsAnswer(BaseModel):
    """The nearest first."""

    id: int | str
    neighbors: list[NeighborItem]


class FoundItem(BaseModel):
    """An item, and how often it was chosen in training."""

    item: int | str
    title: str | None
    actions: int | None


class ItemsAnswer(BaseModel):
    """Items whose title or id matches."""

    items: list[FoundItem]


class Point(BaseModel):
    """An item's place on the map."""

    item: int | str
    x: float
    y: float
    title: str | None


class MapAnswer(BaseModel):
    """The most popular items."""

    points: list[Point]


class HealthAnswer(BaseModel):
    """The server answers."""

    status: str
    scheme: str | None
    items: int


class ReloadAnswer(BaseModel):
    """The run that is served now, seen from the directory that runs are looked for in."""

    run: str
    seconds: float


class FactsAnswer(BaseModel):
    """Plain facts of the model, and how the server is doing."""

    model_config = ConfigDict(extra="allow")

    latency_ms: dict[str, float | None]
    requests: int
    hot_hit_rate: float | None


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

_NOT_A_NUMBER = "The model's answer is not a number: the weights of the run that is served are broken."


def json_answer(content: Any) -> Response:
    """Plain values as JSON."""
    try:
        return Response(json.dumps(content, allow_nan=False).encode(), media_type="application/json")
    except ValueError:
        raise Refusal(500, _NOT_A_NUMBER) from None


def vectors_as_json(vectors: Vectors) -> bytes:
    """Float32 [n, dim] -> {"vectors": [[…]], "dim": …}."""
    if not np.isfinite(vectors).all():
        raise Refusal(500, _NOT_A_NUMBER)
    return to_json({"vectors": vectors.tolist(), "dim": vectors.shape[1]})


def add_error_answers(app: FastAPI) -> None:
    """Say what is wrong with a request in one sentence."""
    app.add_exception_handler(RequestValidationError, _explain)
    app.add_exception_handler(ValidationError, _explain)


async def _explain(request: Request, error: Exception) -> Response:
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
