"""The HTTP application: routes around one model, behind limits, counted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from ... import __version__
from ..model import TrainedModel
from ..settings import ServerSettings
from .current_model import CurrentModel
from .limits import OPEN_TO_ALL, Limits
from .metrics import Metrics
from .page import page_routes
from .refusals import explain, problems
from .routes import MODEL_ROUTES, answer_routes, catalogue_routes, embed_route, operation_routes

_DESCRIPTION = "Vectors, scores, recommendations and neighbours for ids, known or new."


def build_app(directory: Path, load: Callable[[Path], TrainedModel], settings: ServerSettings) -> FastAPI:
    """An application that serves the run in a directory; `load` turns a directory into a model, now and at reloads."""
    metrics = Metrics(model_routes=MODEL_ROUTES)
    threads = ThreadPoolExecutor(max(2, torch.get_num_threads()), thread_name_prefix="answers")
    current = CurrentModel(directory, load, metrics=metrics, threads=threads)

    app = FastAPI(
        title="tableless",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        responses=problems(401, 403, 408, 413, 500, 503, 504),
    )
    app.add_exception_handler(RequestValidationError, explain)
    app.add_exception_handler(ValidationError, explain)
    app.include_router(embed_route(current, settings))
    app.include_router(answer_routes(current, settings))
    app.include_router(catalogue_routes(current))
    app.include_router(operation_routes(current, settings, metrics))
    app.include_router(page_routes(app))
    routes = frozenset({"/", "/docs", *app.openapi()["paths"]})
    if settings.token:
        _declare_token(app.openapi())
    app.add_middleware(Limits, settings=settings, metrics=metrics, routes=routes)
    return app


def _declare_token(schema: dict[str, Any]) -> None:
    """Say in the schema, which FastAPI keeps and hands out, where the token is needed."""
    schema.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"token": []}]
    for path, methods in schema["paths"].items():
        if path in OPEN_TO_ALL:
            for operation in methods.values():
                operation["security"] = []
