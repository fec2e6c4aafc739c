"""What is sent and answered, as OpenAPI and pydantic see it: ids, bodies and answers.

Ids are checked here: integers of 64 bits, or strings. An error names the kind and the position of an id, not its value.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeAlias

import numpy as np
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic_core import to_json

from ...recommender.run_directory import Side
from ..items import ListedItem, MapPoint, Neighbor, Recommendation
from .refusals import Refusal
from .served_model import Ids, Vectors

MAX_COUNT = 1000
MAX_POINTS = 10_000

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
MAX_ID_LENGTH = 512
"""Characters of an id that is a string."""

# FastAPI writes limits as floats. 2^63 - 1 would become 2^63, which is no int64; this is the float below it.
_INTEGER = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1024}
_STRING = {"type": "string", "maxLength": MAX_ID_LENGTH}
ID_SCHEMAS: list[dict[str, Any]] = [_INTEGER, _STRING]
"""What an id may be."""


def one_id(value: Any) -> int | str:
    """An id that a caller sent, if it is one."""
    problem = _problem(value)
    if problem:
        raise ValueError(problem)
    return value


def _id_list(values: Any) -> list[int] | list[str]:
    if not isinstance(values, list):
        raise ValueError(f"a list of ids is needed, not {_kind(values)}")
    kinds = set(map(type, values))
    if len(kinds) > 1 and kinds <= {int, str}:
        raise ValueError("ids are all integers or all strings; this list has both")
    if kinds == {int}:  # the whole list at once, since it is nearly always right
        smallest, largest = min(values), max(values)
        if smallest >= -(2**63) and largest < 2**63:
            return values
    for position, value in enumerate(values):
        problem = _problem(value)
        if problem:
            raise ValueError(f"id number {position + 1}: {problem}")
    return values


RawId: TypeAlias = Annotated[
    int | str, PlainValidator(one_id), WithJsonSchema({"anyOf": [_INTEGER, _STRING], "title": "An id"})
]
RawIds: TypeAlias = Annotated[
    list[int] | list[str],
    PlainValidator(_id_list),
    WithJsonSchema({"anyOf": [{"type": "array", "items": _INTEGER}, {"type": "array", "items": _STRING}]}),
]


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


_KNOWN = (
    "True: the run lists the id, or its interactions have it. False: the id is new. Null: the run does not list its "
    "users, so nobody can tell."
)


class VectorsAnswer(BaseModel):
    """Vectors in the order of the ids."""

    vectors: list[list[float]]
    dim: int
    known: Annotated[list[bool] | None, Field(description=f"For each id. {_KNOWN}")]


class KnownPairs(BaseModel):
    """For each user and each item that was sent."""

    users: Annotated[list[bool] | None, Field(description=_KNOWN)]
    items: Annotated[list[bool] | None, Field(description=_KNOWN)]


class ScoresAnswer(BaseModel):
    """Logits, one for each pair."""

    scores: list[float]
    known: KnownPairs


class RecommendAnswer(BaseModel):
    """The best first."""

    user: int | str
    known: Annotated[bool | None, Field(description=_KNOWN)]
    items: list[Recommendation]


class NeighborsAnswer(BaseModel):
    """The nearest first."""

    id: int | str
    known: Annotated[bool | None, Field(description=_KNOWN)]
    neighbors: list[Neighbor]


class ItemsAnswer(BaseModel):
    """Items whose title or id matches."""

    items: list[ListedItem]


class MapAnswer(BaseModel):
    """The most popular items."""

    points: list[MapPoint]


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


_NOT_A_NUMBER = "The model's answer is not a number: the weights of the run that is served are broken."


def json_answer(content: Any) -> Response:
    """Plain values as JSON."""
    try:
        return Response(json.dumps(content, allow_nan=False).encode(), media_type="application/json")
    except ValueError:
        raise Refusal(500, _NOT_A_NUMBER) from None


def vectors_as_json(vectors: Vectors, known: list[bool] | None) -> bytes:
    """Float32 [n, dim] -> {"vectors": [[…]], "dim": …, "known": […]}."""
    if not np.isfinite(vectors).all():
        raise Refusal(500, _NOT_A_NUMBER)
    return to_json({"vectors": vectors.tolist(), "dim": vectors.shape[1], "known": known})


def from_bytes(body: bytes) -> Ids:
    """Little-endian int64, one after the other; the array is a view of the bytes."""
    if len(body) % 8:
        raise Refusal(422, f"The body has {len(body)} bytes; ids are little-endian int64, 8 bytes each.")
    return np.frombuffer(body, "<i8")


def _problem(value: Any) -> str | None:
    if type(value) is int:
        return None if -(2**63) <= value < 2**63 else "integers must lie in [-2^63, 2^63)"
    if type(value) is not str:
        return f"ids are integers or strings, and this is {_kind(value)}"
    if len(value) > MAX_ID_LENGTH:
        return f"strings may have {MAX_ID_LENGTH} characters, and this one has {len(value)}"
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        return "this string is not valid Unicode (half of a surrogate pair)"
    return None


def _kind(value: Any) -> str:
    names = {float: "a number with a fraction", bool: "true or false", type(None): "null", list: "a list"}
    return names.get(type(value), "an object" if isinstance(value, dict) else f"of type {type(value).__name__}")
