"""`POST /items` and `POST /users`: new ids with their features. They are on the disk before the answer."""

from __future__ import annotations

import math
from typing import Annotated, Any

from fastapi import APIRouter, Body
from fastapi.responses import Response
from pydantic import BaseModel, PlainValidator, WithJsonSchema

from ...recommender.features import columns_of
from ...recommender.run_directory import Side
from ..model import TrainedModel
from ..settings import ServerSettings
from .messages import ID_SCHEMAS, RawId, json_answer, one_id
from .refusals import Refusal, problems
from .served_model import CurrentModel

_MAX_ROWS = 1000
_MAX_FEATURES, _MAX_TEXT, _MAX_LIST = 200, 2000, 10_000  # of a row; characters; numbers or tags
_VALUE: list[dict[str, Any]] = [
    {"type": "string", "maxLength": _MAX_TEXT},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "null"},
]
_NEW_ID = {
    "type": "object",
    "required": ["id"],
    "maxProperties": _MAX_FEATURES,
    "properties": {"id": {"anyOf": ID_SCHEMAS}},
    "additionalProperties": {"anyOf": [*_VALUE, {"type": "array", "maxItems": _MAX_LIST, "items": {"anyOf": _VALUE}}]},
    "example": {"id": 777, "title": "A new film", "genres": ["Comedy", "Drama"], "year": 2026},
}


def _one_row(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("a new id is an object with `id` and features")
    if len(value) > _MAX_FEATURES:
        raise ValueError(f"a new id may have {_MAX_FEATURES} fields")
    if "id" not in value:
        raise ValueError("the field `id` is missing")
    row = {**value, "id": one_id(value["id"])}
    for own in row.values():
        _refuse_unfit(own, deep=True)
    return row


def _refuse_unfit(value: Any, *, deep: bool) -> None:
    """Refuse what no feature is: objects, lists in lists, and what is very long."""
    if isinstance(value, str):
        if len(value) > _MAX_TEXT:
            raise ValueError(f"a text may have {_MAX_TEXT} characters")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError("a text is not valid Unicode (half of a surrogate pair)")
    elif isinstance(value, list) and deep:
        if len(value) > _MAX_LIST:
            raise ValueError(f"a list may have {_MAX_LIST} values")
        for own in value:
            _refuse_unfit(own, deep=False)
    elif not isinstance(value, (int, float, type(None))) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("a feature is a text, a number, a list of one of them, or null")


def _rows(value: Any) -> list[dict[str, Any]]:
    rows = value if isinstance(value, list) else [value]
    if not 0 < len(rows) <= _MAX_ROWS:
        raise ValueError(f"send from 1 to {_MAX_ROWS} new ids; this request has {len(rows)}")
    return [_one_row(row) for row in rows]


NewIds = Annotated[
    list[dict[str, Any]],
    PlainValidator(_rows),
    WithJsonSchema({"anyOf": [_NEW_ID, {"type": "array", "minItems": 1, "maxItems": _MAX_ROWS, "items": _NEW_ID}]}),
    Body(),
]


class AddedAnswer(BaseModel):
    """The ids that were added, and how many items there are now."""

    added: list[RawId]
    num_items: int


def new_id_routes(current: CurrentModel, settings: ServerSettings) -> APIRouter:
    """Adding items and users by what is known of them."""
    router = APIRouter(responses=problems(400, 403, 404, 422))

    async def added(side: Side, rows: list[dict[str, Any]]) -> Response:
        if not settings.reload_allowed:
            raise Refusal(403, "Adding ids from other machines needs a token: start the server with --token.")
        served = current.served
        for row in rows:
            served.refuse_other_kind(side, [row["id"]])
        return json_answer(await served.ask(lambda model: _add(model, side, rows)))

    @router.post("/items", response_model=AddedAnswer)
    async def add_items(body: NewIds) -> Response:
        """Add new items by their features: they are recommended and have neighbours from then on.

        Send one object with `id` and features, or a list of them. Features go by the names that they had in training,
        and any may be left out; `title` is shown in answers. The answer comes when they are on the disk. An item that
        was added before gets its new features; one that was in training is refused.
        """
        return await added("item", body)

    @router.post("/users", response_model=AddedAnswer)
    async def add_users(body: NewIds) -> Response:
        """Add new users by their features, as `POST /items` does with items. Then ask for their recommendations."""
        return await added("user", body)

    return router


def _add(model: TrainedModel, side: Side, rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = columns_of(model.config, side).names
    for position, row in enumerate(rows):
        if not row.keys() <= {*names, "id", "title"}:  # the model's own message would repeat what the caller made up
            place = f"Row {position + 1} has" if len(rows) > 1 else "There is"
            raise Refusal(422, f"{place} a field that is no feature of this run; its features are {', '.join(names)}.")
    try:
        ids = (model.add_items if side == "item" else model.add_users)(rows)
    except ValueError as error:
        sentence = str(error)
        raise Refusal(422, f"{sentence[0].upper()}{sentence[1:]}.") from None
    except OSError as error:
        raise Refusal(500, f"The server can't keep new ids on its disk ({error.strerror}).") from None
    return {"added": ids, "num_items": model.num_items}
