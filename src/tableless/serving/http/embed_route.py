"""POST /embed: the busiest route, and so the shortest way from bytes to bytes."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from ...recommender.answers import Side
from .answers import vectors_as_json
from .batching import Ids
from .limits import Refusal
from .messages import EmbedBody, VectorsAnswer, problems
from .raw_ids import from_bytes
from .reload import CurrentModel
from .settings import Settings

_BYTES = "application/octet-stream"
_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_OPENAPI: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": EmbedBody.model_json_schema()}, _BYTES: _BINARY},
    },
}
_OK: dict[int | str, dict[str, Any]] = {
    200: {"model": VectorsAnswer, "content": {_BYTES: _BINARY}, "description": "The vectors, in the ids' order."}
}


def embed_route(current: CurrentModel, settings: Settings) -> APIRouter:
    """Ids in, vectors out."""
    router = APIRouter()

    @router.post("/embed", openapi_extra=_OPENAPI, responses={**_OK, **problems(404, 415, 422)})
    async def embed(request: Request, side: Side = "item") -> Response:
        """Vectors for ids, known or new.

        The body is JSON, or raw little-endian int64 (`Content-Type: application/octet-stream`); `side` can be said in
        the address or in JSON, which counts more. The answer is JSON, or, with `Accept: application/octet-stream`,
        raw little-endian float32, row by row, with the shape in the headers X-Rows and X-Dim.
        """
        ids, side = await _read(request, side, current)
        if len(ids) > settings.max_ids:
            raise Refusal(413, f"A request may have {settings.max_ids:,} ids, and this one has {len(ids):,}.")
        served = current.served
        vectors = await served.embed(ids, side)
        if _BYTES in request.headers.get("accept", ""):
            rows, dim = vectors.shape
            return Response(
                vectors.astype("<f4", copy=False).tobytes(),
                media_type=_BYTES,
                headers={"X-Rows": str(rows), "X-Dim": str(dim)},
            )
        return Response(await served.ask(lambda _: vectors_as_json(vectors)), media_type="application/json")

    return router


async def _read(request: Request, side: Side, current: CurrentModel) -> tuple[Ids, Side]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == _BYTES:
        return from_bytes(await request.body()), side
    if kind != "application/json":
        raise Refusal(415, f"Send ids as application/json, or as {_BYTES}.")
    asked = EmbedBody.model_validate_json(await request.body())
    side = asked.side or side
    return current.served.ids(side, asked.ids), side
