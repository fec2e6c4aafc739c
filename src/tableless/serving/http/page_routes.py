"""The page at /, its files, and the documentation at /docs: nothing of it comes from elsewhere."""

from __future__ import annotations

import mimetypes
from importlib.resources import files

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse, Response

from .documentation import render
from .limits import Refusal

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
