"""For those who run the server: is it well, what does it do, take another run."""

from __future__ import annotations

import time

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic_core import to_json

from .answers import json_answer
from .limits import Refusal
from .messages import FactsAnswer, HealthAnswer, ReloadAnswer, ReloadBody, problems
from .metrics import Metrics
from .reload import CurrentModel
from .settings import Settings


def operation_routes(current: CurrentModel, settings: Settings, metrics: Metrics) -> APIRouter:
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
