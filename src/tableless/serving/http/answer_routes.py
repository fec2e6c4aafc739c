"""Scores, recommendations and neighbours, and what the page asks for: items by name, and the map."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from ...recommender.answers import Side
from ..trained_model import TrainedModel
from .answers import json_answer
from .limits import Refusal
from .messages import (
    MAX_COUNT,
    MAX_POINTS,
    ItemsAnswer,
    MapAnswer,
    NeighborsAnswer,
    RecommendAnswer,
    RecommendBody,
    ScoreBody,
    ScoresAnswer,
    problems,
)
from .raw_ids import MAX_ID_LENGTH, from_text
from .reload import CurrentModel
from .settings import Settings

TextId = Annotated[str, Query(min_length=1, max_length=MAX_ID_LENGTH)]
CountQuery = Annotated[int, Query(ge=1, le=MAX_COUNT)]
PointsQuery = Annotated[int, Query(ge=1, le=MAX_POINTS)]


def answer_routes(current: CurrentModel, settings: Settings) -> APIRouter:
    """Everything but vectors."""
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
        users, items = served.ids("user", body.users), served.ids("item", body.items)
        return json_answer({"scores": await served.ask(lambda model: model.score(users, items).tolist())})

    async def recommended(user: int | str, count: int, exclude_seen: bool, exact: bool | None) -> Response:
        served = current.served
        served.refuse_other_kind("user", user)
        best = await served.ask(
            lambda model: model.recommend(user, count=count, exclude_seen=exclude_seen, exact=exact)
        )
        return json_answer({"user": user, "items": [asdict(item) for item in best]})

    @router.get("/recommend", response_model=RecommendAnswer)
    async def recommend_to(
        user: TextId, count: CountQuery = 10, exclude_seen: bool = True, exact: bool | None = None
    ) -> Response:
        """The best items for a user, known or new. `exact` scores every item though there is an index."""
        return await recommended(from_text(current.served.model, "user", user), count, exclude_seen, exact)

    @router.post("/recommend", response_model=RecommendAnswer, responses=problems(400))
    async def recommend(body: RecommendBody) -> Response:
        """The best items for a user, known or new."""
        return await recommended(body.user, body.count, body.exclude_seen, body.exact)

    @router.get("/neighbors", response_model=NeighborsAnswer)
    async def neighbors(id: TextId, side: Side = "item", count: CountQuery = 10) -> Response:
        """The known items (or users) nearest to one that is known or new, by the angle between their vectors."""
        served = current.served
        raw = from_text(served.model, side, id)
        found = await served.ask(lambda model: model.neighbors(raw, side=side, count=count))
        return json_answer({"id": raw, "neighbors": [asdict(neighbor) for neighbor in found]})

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
