"""The routes: vectors; scores, recommendations and the like; and what those who run the server ask for."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic_core import to_json

from ...embedding.ids import to_ids
from ...recommender.run_directory import Side
from ..model import TrainedModel
from ..settings import ServerSettings
from .messages import (
    MAX_COUNT,
    MAX_ID_LENGTH,
    MAX_POINTS,
    EmbedBody,
    FactsAnswer,
    HealthAnswer,
    ItemsAnswer,
    MapAnswer,
    NeighborsAnswer,
    RecommendAnswer,
    RecommendBody,
    ReloadAnswer,
    ReloadBody,
    ScoreBody,
    ScoresAnswer,
    VectorsAnswer,
    from_bytes,
    json_answer,
    vectors_as_json,
)
from .metrics import Metrics
from .refusals import Refusal, problems
from .served_model import CurrentModel, Ids

MODEL_ROUTES = frozenset({"/embed", "/score", "/recommend", "/neighbors"})
"""Routes whose latency the page shows: the model computes something for each of their answers."""

TextId = Annotated[str, Query(min_length=1, max_length=MAX_ID_LENGTH)]
CountQuery = Annotated[int, Query(ge=1, le=MAX_COUNT)]
PointsQuery = Annotated[int, Query(ge=1, le=MAX_POINTS)]


def answer_routes(current: CurrentModel, settings: ServerSettings) -> APIRouter:
    """Scores, recommendations and neighbours."""
    router = APIRouter(responses=problems(404, 422))

    @router.post("/score", response_model=ScoresAnswer, responses=problems(400))
    async def score(body: ScoreBody) -> Response:
        """Scores (logits) of pairs: as many users as items, or one user for all items."""
        largest = max(len(body.users), len(body.items))
        if largest > settings.max_ids:
            raise Refusal(413, f"A request may have {settings.max_ids:,} ids, and this one has {largest:,}.")
        if len(body.users) not in (1, len(body.items)):
            raise Refusal(
                422, f"{len(body.users)} users and {len(body.items)} items make no pairs; give as many, or one user."
            )
        served = current.served
        served.refuse_other_kind("user", body.users)
        served.refuse_other_kind("item", body.items)

        def scored(model: TrainedModel) -> dict[str, Any]:
            scores = model.score(body.users, body.items).tolist()
            sides: tuple[tuple[str, Side, Any], ...] = (("users", "user", body.users), ("items", "item", body.items))
            known = {name: model.known_ids(to_ids(ids), side=side) for name, side, ids in sides}
            return {"scores": scores, "known": known}

        return json_answer(await served.ask(scored))

    async def recommended(user: int | str, count: int, exclude_seen: bool, exact: bool | None) -> Response:
        served = current.served
        served.refuse_other_kind("user", [user])
        best = await served.ask(
            lambda model: model.recommend(user, count=count, exclude_seen=exclude_seen, exact=exact)
        )
        return json_answer({"user": user, "known": best.known, "items": [asdict(item) for item in best]})

    @router.get("/recommend", response_model=RecommendAnswer)
    async def recommend_to(
        user: TextId, count: CountQuery = 10, exclude_seen: bool = True, exact: bool | None = None
    ) -> Response:
        """The best items for a user, known or new. `exact` scores every item though there is an index."""
        return await recommended(current.served.parse("user", user), count, exclude_seen, exact)

    @router.post("/recommend", response_model=RecommendAnswer, responses=problems(400))
    async def recommend(body: RecommendBody) -> Response:
        """The best items for a user, known or new."""
        return await recommended(body.user, body.count, body.exclude_seen, body.exact)

    @router.get("/neighbors", response_model=NeighborsAnswer)
    async def neighbors(id: TextId, side: Side = "item", count: CountQuery = 10) -> Response:
        """The known items (or users) nearest to one that is known or new, by the angle between their vectors."""
        served = current.served
        raw = served.parse(side, id)
        found = await served.ask(lambda model: model.neighbors(raw, side=side, count=count))
        return json_answer({"id": raw, "known": found.known, "neighbors": [asdict(neighbor) for neighbor in found]})

    return router


def catalogue_routes(current: CurrentModel) -> APIRouter:
    """What the page asks for: items by name, and the map."""
    router = APIRouter(responses=problems(404, 422))

    @router.get("/items", response_model=ItemsAnswer)
    async def items(query: Annotated[str, Query(max_length=MAX_ID_LENGTH)] = "", count: CountQuery = 20) -> Response:
        """Items whose title holds the text, or whose id begins with it."""
        found = await current.served.ask(lambda model: model.items_matching(query, count=count))
        return json_answer({"items": [asdict(item) for item in found]})

    @router.get("/map", response_model=MapAnswer)
    async def map_of_items(count: PointsQuery = 2000) -> Response:
        """The most popular items on the plane in which their vectors differ most."""

        def points(model: TrainedModel) -> Response:  # all of it in a thread: these are many
            return json_answer({"points": [asdict(point) for point in model.map2d(count=count)]})

        return await current.served.ask(points)

    return router


def operation_routes(current: CurrentModel, settings: ServerSettings, metrics: Metrics) -> APIRouter:
    """Health, metrics, facts and reload."""
    router = APIRouter()

    @router.get("/healthz", response_model=HealthAnswer)
    async def healthz() -> Response:
        """The server answers; also under load, and without a token."""
        model = current.served.model
        return json_answer({"status": "ok", "scheme": model.facts.get("scheme"), "items": model.num_items})

    @router.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Counters."}},
    )
    async def prometheus() -> Response:
        """Counters in Prometheus' text format."""
        return Response(metrics.as_text(), media_type=CONTENT_TYPE_LATEST)

    @router.get("/facts", response_model=FactsAnswer)
    async def facts() -> Response:
        """What the model is, what its tables would have cost, and how quick answers were of late."""
        model = current.served.model
        now = {
            "latency_ms": metrics.latency_ms(),
            "requests": metrics.num_requests,
            "hot_hit_rate": model.hot_hit_rate,
            "num_items": model.num_items,  # some may have been added
        }
        content = to_json({**model.facts, **now}, inf_nan_mode="null")  # a result that was not measured may be NaN
        return Response(content, media_type="application/json")

    @router.post("/reload", response_model=ReloadAnswer, responses=problems(400, 403, 404, 409, 422))
    async def reload(body: ReloadBody) -> Response:
        """Load a run in the background and go on with it; requests in flight finish with the one before."""
        if not settings.reload_allowed:
            raise Refusal(403, "Reloading from other machines needs a token: start the server with --token.")
        start = time.perf_counter()
        await current.reload(body.run)
        run = current.directory.relative_to(current.root)
        return json_answer({"run": str(run), "seconds": round(time.perf_counter() - start, 3)})

    return router


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


def embed_route(current: CurrentModel, settings: ServerSettings) -> APIRouter:
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

        def as_json(model: TrainedModel) -> bytes:
            return vectors_as_json(vectors, model.known_ids(torch.from_numpy(ids.astype(np.int64)), side=side))

        return Response(await served.ask(as_json), media_type="application/json")

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
