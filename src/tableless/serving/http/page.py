"""The page at /, its files, and the documentation at /docs, made from the OpenAPI schema.

All of it comes from this server. FastAPI's own documentation page loads its scripts from the internet.
"""

from __future__ import annotations

import json
import mimetypes
import re
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse, Response

from .refusals import Refusal

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


_SAFE = {
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
        return Response(contents[name], media_type=kind, headers=_SAFE)

    @router.get("/")
    async def page() -> Response:
        return answer("index.html")

    @router.get("/page/{name}")
    async def file(name: str) -> Response:
        return answer(name)

    @router.get("/docs")
    async def docs() -> Response:
        return HTMLResponse(render(app.openapi()), headers=_SAFE)

    return router
