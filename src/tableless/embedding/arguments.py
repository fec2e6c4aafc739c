"""Arguments from a file: are they of the kinds that the constructor's own signature names?

Python would take a fraction where an integer is meant, and fail later, at the first question.
"""

from __future__ import annotations

import reprlib
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from .deep_hash import DeepHashEmbedding
from .side_features import SideFeatures

_NESTED: dict[str, type] = {"network": DeepHashEmbedding, "side_features": SideFeatures}


def require_kinds(constructed: type[Any], arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that `constructed` is not made for. Unknown names are left to Python."""
    hints = get_type_hints(constructed.__init__)
    for name, value in arguments.items():
        if name in _NESTED and isinstance(value, Mapping):
            require_kinds(_NESTED[name], value)
        elif name in hints and not _is_of_kind(value, hints[name]):
            wanted = hints[name].__name__ if isinstance(hints[name], type) else str(hints[name]).replace("typing.", "")
            raise ValueError(f"{name} is {reprlib.repr(value)}; it must be {wanted}")


def _is_of_kind(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_is_of_kind(value, own) for own in get_args(hint))
    if hint in (int, float):  # truth is a number to Python, and not to us
        return isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool)
    return isinstance(value, origin or hint)
