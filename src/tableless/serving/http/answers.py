"""Answers as bytes: JSON without NaN, errors as one sentence that repeats nothing of the request."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError
from pydantic_core import to_json

from .batching import Vectors
from .limits import Refusal

_NOT_A_NUMBER = "The model's answer is not a number: the weights of the run that is served are broken."


def json_answer(content: Any) -> Response:
    """Plain values as JSON."""
    try:
        return Response(json.dumps(content, allow_nan=False).encode(), media_type="application/json")
    except ValueError:
        raise Refusal(500, _NOT_A_NUMBER) from None


def vectors_as_json(vectors: Vectors) -> bytes:
    """Float32 [n, dim] -> {"vectors": [[…]], "dim": …}."""
    if not np.isfinite(vectors).all():
        raise Refusal(500, _NOT_A_NUMBER)
    return to_json({"vectors": vectors.tolist(), "dim": vectors.shape[1]})


def add_error_answers(app: FastAPI) -> None:
    """Say what is wrong with a request in one sentence."""
    app.add_exception_handler(RequestValidationError, _explain)
    app.add_exception_handler(ValidationError, _explain)


async def _explain(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError | ValidationError)
    return JSONResponse({"detail": _sentence(error.errors()[0])}, status_code=422)


def _sentence(error: Any) -> str:
    if error["type"] == "json_invalid":
        return "The body is not valid JSON."
    if error["type"] == "extra_forbidden":  # its place is a name that the caller made up
        return "The body has a field that is not known here."
    place = " ".join(str(part) for part in error["loc"] if part not in ("body", "query"))
    message = error["msg"].removeprefix("Value error, ")
    return f"{place}: {message}." if place else f"The body: {message}."
