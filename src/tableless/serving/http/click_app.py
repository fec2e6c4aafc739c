"""The HTTP application of a click model: `POST /score` with named columns, behind the usual limits."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import torch
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from ... import __version__
from ...data.clicks.columns import LONGEST_LIST, ClickColumn
from ...data.clicks.table import to_inputs
from ..click_door import TrainedClickModel
from ..settings import ServerSettings
from .app import SAFE_HEADERS, declare_token, render
from .limits import Limits
from .messages import MAX_ID_LENGTH, json_answer
from .metrics import Metrics
from .refusals import Refusal, explain, problems

_ROUTES = frozenset({"/score"})
_KINDS = {"integer": "integers of 64 bits", "string": "strings", "number": "numbers", "buckets": "numbers"}


class ClickScoreBody(BaseModel):
    """A list of values for each column, all of one length; null where a value is missing."""

    model_config = ConfigDict(extra="forbid", strict=True)

    columns: Annotated[
        dict[str, list[Any]],
        Field(json_schema_extra={"example": {"user": [42, 7], "device": ["phone", None]}}),
    ]


class ClickScoresAnswer(BaseModel):
    """For each row, in the order of the rows."""

    scores: Annotated[list[float], Field(description="Logits.")]
    probabilities: Annotated[list[float], Field(description="How likely a click is.")]


def build_click_app(model: TrainedClickModel, settings: ServerSettings) -> FastAPI:
    """An application that answers with one click model. There is no page and no reload."""
    metrics = Metrics(model_routes=_ROUTES)
    threads = ThreadPoolExecutor(max(2, torch.get_num_threads()), thread_name_prefix="answers")
    app = FastAPI(
        title="tableless",
        version=__version__,
        description="How likely a click is, given the columns of a row.",
        docs_url=None,
        redoc_url=None,
        responses=problems(401, 403, 408, 413, 500, 503, 504),
    )
    app.add_exception_handler(RequestValidationError, explain)
    app.add_exception_handler(ValidationError, explain)
    app.include_router(_score_route(model, settings, threads))
    app.include_router(_operation_routes(model, metrics))
    app.include_router(_docs_routes(app))
    routes = frozenset({"/", "/docs", *app.openapi()["paths"]})
    if settings.token:
        declare_token(app.openapi())
    app.add_middleware(Limits, settings=settings, metrics=metrics, routes=routes)
    return app


def _score_route(model: TrainedClickModel, settings: ServerSettings, threads: ThreadPoolExecutor) -> APIRouter:
    router = APIRouter(responses=problems(422))

    @router.post("/score", response_model=ClickScoresAnswer, responses=problems(400))
    async def score(body: ClickScoreBody) -> Response:
        """How likely a click is for each row, from columns by name.

        Every column of the model (`GET /facts` lists them) is needed; null where a value is missing. Values that the
        model has not seen are answered, too.
        """
        columns = body.columns
        if max(map(len, columns.values()), default=0) > settings.max_ids:
            raise Refusal(413, f"A request may have {settings.max_ids:,} rows.")

        def scored() -> Response:  # all of it in a thread: there may be many values to look at
            if problem := problem_with(columns, model.columns):
                raise Refusal(422, problem)
            logits = model.score_inputs(to_inputs(columns, model.columns))
            return json_answer({"scores": logits.tolist(), "probabilities": torch.sigmoid(logits).tolist()})

        return await asyncio.get_running_loop().run_in_executor(threads, scored)

    return router


def problem_with(columns: dict[str, list[Any]], wanted: tuple[ClickColumn, ...]) -> str | None:
    """What is wrong with the columns of a request, in a sentence that repeats nothing of it; None if all is well."""
    for column in wanted:
        if column.name not in columns:
            return f"The column {column.name!r} is missing; give null for each value of it that is not known."
    if len(columns) > len(wanted):
        return f"There is a column that the model does not have; it has {', '.join(own.name for own in wanted)}."
    if len({len(values) for values in columns.values()}) > 1:
        return "The columns have different lengths; each needs a value for every row."
    for column in wanted:
        for row, value in enumerate(columns[column.name]):
            if value is None or (_is_list(value) if column.is_list else _is_right(value, column)):
                if column.is_list and value and not all(_is_right(own, column) for own in value):
                    return f"Row {row + 1} of the column {column.name!r}: its lists need {_KINDS[str(column.kind)]}."
                continue
            needed = f"lists of at most {LONGEST_LIST} " if column.is_list else ""
            return f"Row {row + 1} of the column {column.name!r} needs {needed}{_KINDS[str(column.kind)]}, or null."
    return None


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= LONGEST_LIST


def _is_right(value: Any, column: ClickColumn) -> bool:
    """Is it of the kind that the column has? In Python truth is a number, and here it is not."""
    if isinstance(value, bool):
        return False
    if column.is_number:
        return isinstance(value, (int, float)) and abs(value) < 1e30
    if column.kind == "string":
        return isinstance(value, str) and len(value) <= MAX_ID_LENGTH
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _operation_routes(model: TrainedClickModel, metrics: Metrics) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz")
    async def healthz() -> Response:
        """The server answers; also under load, and without a token."""
        return json_answer({"status": "ok", "kind": "clicks", "backbone": model.facts["backbone"]})

    @router.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Counters."}},
    )
    async def prometheus() -> Response:
        """Counters in Prometheus' text format."""
        return Response(metrics.as_text(), media_type=CONTENT_TYPE_LATEST)

    @router.get("/facts")
    async def facts() -> Response:
        """What the model is, which columns it has, and how quick answers were of late."""
        now = {"latency_ms": metrics.latency_ms(), "requests": metrics.num_requests}
        return Response(to_json({**model.facts, **now}, inf_nan_mode="null"), media_type="application/json")

    return router


def _docs_routes(app: FastAPI) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    async def docs() -> Response:
        return HTMLResponse(render(app.openapi()), headers=SAFE_HEADERS)

    router.add_api_route("/", docs)
    router.add_api_route("/docs", docs)
    return router
