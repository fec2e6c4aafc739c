"""Ids as callers send them, checked at the door: integers of 64 bits or strings, in JSON, in an address, or as bytes.

What is wrong with them is said by kind and position; values are never repeated.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainValidator, WithJsonSchema

from ...embedding.ids import to_ids
from ...recommender.run_directory import Side
from ..model import TrainedModel
from .limits import Refusal

MAX_ID_LENGTH = 512
"""Characters of an id that is a string."""

_INTEGER = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
_STRING = {"type": "string", "maxLength": MAX_ID_LENGTH}


def _one_id(value: Any) -> int | str:
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
    int | str, PlainValidator(_one_id), WithJsonSchema({"anyOf": [_INTEGER, _STRING], "title": "An id"})
]
RawIds: TypeAlias = Annotated[
    list[int] | list[str],
    PlainValidator(_id_list),
    WithJsonSchema({"anyOf": [{"type": "array", "items": _INTEGER}, {"type": "array", "items": _STRING}]}),
]


def as_int64(values: list[int] | list[str]) -> NDArray[np.int64]:
    """Checked ids -> what schemes are asked."""
    if values and isinstance(values[0], int):
        return np.array(values, np.int64)
    return to_ids(values).numpy()


def from_bytes(body: bytes) -> NDArray[np.int64]:
    """Little-endian int64, one after the other; the array is a view of the bytes."""
    if len(body) % 8:
        raise Refusal(422, f"The body has {len(body)} bytes; ids are little-endian int64, 8 bytes each.")
    return np.frombuffer(body, "<i8")


def from_text(model: TrainedModel, side: Side, text: str) -> int | str:
    """An id that is part of an address, in the kind that the data has."""
    try:
        raw = model.parse(side, text)
    except ValueError:
        raise Refusal(404, f"There is no such {side}: {side} ids are integers in this data.") from None
    if _problem(raw):
        raise Refusal(404, f"There is no such {side}: {_problem(raw)}.")
    return raw


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
