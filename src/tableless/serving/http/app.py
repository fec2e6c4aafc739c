"""The HTTP application: routes around one model, behind limits, with a page and its documentation; run by uvicorn.

The page at / and the documentation at /docs come from this server. FastAPI's own documentation page loads its scripts
from the internet.
"""

from __future__ import annotations

import contextlib
import json
import math
import mimetypes
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
import uvicorn
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from pydantic import ValidationError

from ... import __version__
from ..model import TrainedModel
from ..settings import ServerSettings
from .following import StreamFigures, following
from .limits import OPEN_TO_ALL, Limits, guarded
from .metrics import Metrics
from .new_ids import new_id_routes
from .refusals import Refusal, explain, problems
from .routes import MODEL_ROUTES, answer_routes, catalogue_routes, embed_route, operation_routes
from .served_model import CurrentModel

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "section{border-top:1px solid #8886;padding:.5rem 0 1rem}code,pre{font:14px ui-monospace,monospace}"
    "pre{overflow:auto;padding:.75rem;background:#8881}"
    "td,th{text-align:left;padding:.1rem 1rem .1rem 0;vertical-align:top}"
)


def render(schema: dict[str, Any]) -> str:
    """HTML of every route: what it is for, what it takes, what it answers."""
    title = escape(schema["info"]["title"])
    routes = "".join(
        _route(schema, method, path, operation)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{title}</h1><p>{_as_html(schema['info']['description'])} For machines: "
        f'<a href="/openapi.json">openapi.json</a>.</p>{routes}</html>'
    )


def _route(schema: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> str:
    text = _as_html(operation.get("description", "")).replace("\n\n", "</p><p>")
    return (
        f"<section><h2><code>{method.upper()} {escape(path)}</code></h2><p>{text}</p>"
        + _table("Parameters", _parameters(operation))
        + "".join(_bodies(schema, operation))
        + _table("Answers", [(status, answer["description"]) for status, answer in operation["responses"].items()])
        + "</section>"
    )


def _as_html(text: str) -> str:
    """Text with `code` between backticks."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _parameters(operation: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for parameter in operation.get("parameters", []):
        known = {key: value for key, value in parameter["schema"].items() if key != "title"}
        need = "required" if parameter.get("required") else "optional"
        rows.append((parameter["name"], f"{need}, {json.dumps(known)}"))
    return rows


def _bodies(schema: dict[str, Any], operation: dict[str, Any]) -> Iterator[str]:
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        shape = content["schema"]
        if "$ref" in shape:
            shape = schema["components"]["schemas"][shape["$ref"].rpartition("/")[2]]
        text = json.dumps(shape.get("properties", shape), indent=2)
        yield f"<h3>Body, <code>{kind}</code></h3><pre>{escape(text)}</pre>"


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    if not rows:
        return ""
    lines = "".join(f"<tr><th>{escape(name)}</th><td>{_as_html(text)}</td></tr>" for name, text in rows)
    return f"<h3>{title}</h3><table>{lines}</table>"


SAFE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def page_routes(app: FastAPI) -> APIRouter:
    """Files are read once, when the server starts: no name that a caller sends ever reaches the disk."""
    router = APIRouter(include_in_schema=False)
    folder = files("tableless.serving") / "page"
    contents = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()} if folder.is_dir() else {}

    def answer(name: str) -> Response:
        if name not in contents:
            raise Refusal(404, "There is no such file.")
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response(contents[name], media_type=kind, headers=SAFE_HEADERS)

    @router.get("/")
    async def page() -> Response:
        return answer("index.html")

    @router.get("/page/{name}")
    async def file(name: str) -> Response:
        return answer(name)

    @router.get("/docs")
    async def docs() -> Response:
        return HTMLResponse(render(app.openapi()), headers=SAFE_HEADERS)

    return router


_DESCRIPTION = "Vectors, scores, recommendations and neighbours for ids, known or new."


def build_app(directory: Path, load: Callable[[Path], TrainedModel], settings: ServerSettings) -> FastAPI:
    """An application that serves the run in a directory; `load` turns a directory into a model, now and at reloads."""
    metrics = Metrics(model_routes=MODEL_ROUTES)
    threads = ThreadPoolExecutor(max(2, torch.get_num_threads()), thread_name_prefix="answers")
    current = CurrentModel(directory, load, metrics=metrics, threads=threads)
    if settings.follow:
        metrics.registry.register(StreamFigures(lambda: current.directory))

    app = FastAPI(
        title="tableless",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=following(current) if settings.follow else None,
        responses=problems(401, 403, 408, 413, 500, 503, 504),
    )
    app.add_exception_handler(RequestValidationError, explain)
    app.add_exception_handler(ValidationError, explain)
    app.include_router(embed_route(current, settings))
    app.include_router(answer_routes(current, settings))
    app.include_router(catalogue_routes(current))
    app.include_router(new_id_routes(current, settings))
    app.include_router(operation_routes(current, settings, metrics))
    app.include_router(page_routes(app))
    routes = frozenset({"/", "/docs", *app.openapi()["paths"]})
    if settings.token:
        declare_token(app.openapi())
    app.add_middleware(Limits, settings=settings, metrics=metrics, routes=routes)
    return app


def declare_token(schema: dict[str, Any]) -> None:
    """Say in the schema, which FastAPI keeps and hands out, where the token is needed."""
    schema.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"token": []}]
    for path, methods in schema["paths"].items():
        if path in OPEN_TO_ALL:
            for operation in methods.values():
                operation["security"] = []


def serve(app: FastAPI, *, host: str, port: int, settings: ServerSettings, on_ready: Callable[[str], None]) -> None:
    """Answer until SIGTERM or Ctrl+C: then accept nothing more, finish what was begun, and return.

    Port 0 takes any that is free; `on_ready` is told the address.
    """
    listener = _listen(host, port)
    _allow_many_connections()
    config = uvicorn.Config(
        app,
        http=guarded(settings),
        ws="none",
        access_log=False,  # its lines would hold ids
        log_level="warning",
        server_header=False,
        timeout_keep_alive=math.ceil(settings.head_time_limit),
        timeout_graceful_shutdown=math.ceil(settings.time_limit) + 1,
    )
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again when it has stopped
    try:
        on_ready(f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}")
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # raised again likewise
    finally:
        signal.signal(signal.SIGTERM, before)
        listener.close()


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        if os.name != "nt":  # on Windows it would let two programs listen on one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)  # connections are taken from here on, and answered as soon as uvicorn is up
    except OSError as error:
        listener.close()
        raise OSError(f"{host}:{port} can't be listened on ({error.strerror}); give another --host or --port") from None
    except OverflowError:
        listener.close()
        raise ValueError(f"--port is {port}; it must be from 0 to 65535") from None
    return listener


def _allow_many_connections() -> None:
    """Each is a file; the usual 1024 would be few. Windows has no such limit, and no module for it."""
    try:
        import resource
    except ImportError:
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS calls it endless, and refuses that number
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
