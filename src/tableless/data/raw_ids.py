"""Raw ids as people give them: are they of the kind that the data has, integers or strings?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from torch import Tensor

from ..embedding.ids import to_ids


def parse_id(text: str, *, kind: str, side: str) -> int | str:
    """A raw id typed by a person, in the kind ("integer" or "string") that the data has; `side` is for the message."""
    if kind == "string":
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{side} ids are integers in this data; {text!r} is none") from None


def ids_of_kind(raw: Any, *, kind: str, side: str) -> Tensor:
    """Raw ids as int64. A string where the data has integers is refused; an integer is taken for an id everywhere."""
    if isinstance(raw, Iterator):
        raw = list(raw)
    if kind == "integer" and (text := _first_text(raw)) is not None:
        raise ValueError(f"{side} ids are integers in this run's data, and {text!r} is a string")
    return to_ids(raw)


def _first_text(raw: Any) -> str | bytes | None:
    """The first of some raw ids, if they are strings."""
    if isinstance(raw, (str, bytes)):
        return raw
    if isinstance(raw, (Tensor, np.generic)):
        return None
    values = raw.ravel() if isinstance(raw, np.ndarray) else raw
    first = next(iter(values), None) if isinstance(values, Iterable) else values
    return first if isinstance(first, (str, bytes)) else None
