"""A scheme as a directory: `config.json` says what it is, `model.safetensors` holds its weights. Never pickle.

Directories may come from anyone, so that every file is checked before it is used: weights against their checksum, a
config against the weights beside it before the memory that it asks for is taken, and each argument in a config against
the type that the constructor names.
"""

from __future__ import annotations

import json
import os
import reprlib
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from ..embedding.by_field import BY_FIELD, EmbeddingByField
from ..embedding.deep_hash import DeepHashEmbedding
from ..embedding.described_ids import WithDescribedIds
from ..embedding.hashing import ENCODING_VERSION
from ..embedding.scheme import EmbeddingScheme
from ..embedding.schemes import SCHEMES
from ..embedding.side_features import SideFeatures
from ..hints import require_known_name
from .whole import load_tensors, read_shapes, replacing, save_tensors, write_text

CONFIG, WEIGHTS = "config.json", "model.safetensors"

_LARGEST_CONFIG = 1 << 27  # bytes: the tags of side features are listed in it
# Arguments that say how often something is repeated. Each repetition adds at least 8 bytes to the weights, unless there
# are few of them.
_LOOPS, _FEW_TURNS = ("depth", "embedding_dim", "num_hashes", "num_bits"), 1 << 13

Model = TypeVar("Model", bound=nn.Module)


def describe_scheme(scheme: EmbeddingScheme) -> dict[str, Any]:
    """A scheme without its weights, as plain values: its name and its arguments."""
    if isinstance(scheme, WithDescribedIds):
        return {**describe_scheme(scheme.inner), "described_ids": scheme.config}
    name = next(name for name, kind in _kinds().items() if kind is type(scheme))
    return {"scheme": name, "encoding_version": ENCODING_VERSION, "arguments": scheme.config}


def _kinds() -> dict[str, type[EmbeddingScheme]]:
    """By name. `SCHEMES` is looked at each time, because a program may have put schemes of its own there."""
    return {**SCHEMES, BY_FIELD: EmbeddingByField}


def build_scheme(description: Mapping[str, Any]) -> EmbeddingScheme:
    """The scheme that was described, with its starting weights."""
    if description["encoding_version"] != ENCODING_VERSION:
        raise ValueError(
            f"this was saved with version {description['encoding_version']} of the encoding; this library speaks "
            f"version {ENCODING_VERSION}. Install the release of tableless that wrote it"
        )
    require_known_name("scheme", description["scheme"], _kinds())
    scheme = _kinds()[description["scheme"]]
    require_kinds(scheme, description["arguments"])
    built = scheme(**{**scheme.old_defaults, **description["arguments"]})
    if "described_ids" not in description:
        return built
    require_kinds(WithDescribedIds, description["described_ids"])
    return WithDescribedIds(built, **description["described_ids"])


def save_scheme(scheme: EmbeddingScheme, directory: str | os.PathLike[str]) -> None:
    """Write a scheme to a directory, as `config.json` and `model.safetensors`.

    A scheme with weights of few bits is written packed; the object itself stays trainable.

    Args:
        scheme: Any scheme of `tableless.SCHEMES`.
        directory: Where to write. It is made if it does not exist. A scheme that is there already is replaced.

    Raises:
        OSError: The directory cannot be written to.

    Example:
        ```python
        from tableless import DeepHashEmbedding, save_scheme

        scheme = DeepHashEmbedding(32, width=64)
        save_scheme(scheme, "out/films")
        ```
    """
    stored = scheme.stored()
    write_model(Path(directory), describe_scheme(stored), stored.state_dict())


def load_scheme(directory: str | os.PathLike[str]) -> EmbeddingScheme:
    """Read a scheme that `tableless.save_scheme` has written.

    Args:
        directory: The directory that it was written to.

    Returns:
        The scheme in eval mode. Its vectors are equal to those that were saved, to the last bit. If its weights have
        few bits it is packed; `scheme.unpack()` makes it trainable again.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, or the two files do not belong together.

    Example:
        ```python
        from tableless import DeepHashEmbedding, load_scheme, save_scheme, to_ids

        save_scheme(DeepHashEmbedding(32, width=64), "out/films")
        films = load_scheme("out/films")
        vectors = films(to_ids(["Alien", "Amélie"]))  # [2, 32]
        ```
    """
    folder = Path(directory)
    return read_model(folder, read_json(folder / CONFIG), build_scheme).eval()


def write_model(directory: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write `config.json` and `model.safetensors`; each appears whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    text, earlier = _as_json(config), directory / CONFIG
    with replacing(earlier) as new_config, replacing(directory / WEIGHTS) as new_weights:
        save_tensors(tensors, new_weights)
        write_text(new_config, text)
        # Both are on the disk and still have to get their names. An earlier config goes first, if it is another, and
        # the new one comes last, so that a config never stands beside the wrong weights, even if this is cut off.
        if earlier.exists() and earlier.read_text(encoding="utf-8", errors="replace") != text:
            earlier.unlink()


def read_model(directory: Path, description: Any, build: Callable[[Any], Model]) -> Model:
    """`build(description)` with the weights of `model.safetensors`.

    The model is first built without memory, and refused unless its tensors have the names and shapes of the file's.
    """
    config, weights = directory / CONFIG, directory / WEIGHTS
    shapes = read_shapes(weights)
    refuse_long_loops(description, config, weights.stat().st_size)
    try:
        with torch.device("meta"):
            sketch = build(description)
    except Exception as error:  # any error can follow from a wrong file, and the file is at fault
        raise ValueError(f"{config} does not describe a model: {_reason(error)}") from error
    try:
        sketch.load_state_dict({name: torch.empty(shape, device="meta") for name, shape in shapes.items()})
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{weights} does not belong to the {CONFIG} beside it: {_reason(error)}") from None
    tensors = load_tensors(weights)
    require_integers(sketch.state_dict(), tensors, weights)
    model = build(description)
    try:
        model.load_state_dict(tensors)
    except ValueError as error:  # the numbers themselves do not fit: a part of a scheme has looked at them
        raise ValueError(f"{weights} does not belong to the {CONFIG} beside it: {_reason(error)}") from None
    return model


def require_integers(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], weights: Path) -> None:
    """Refuse weights that have other numbers where integers belong, which torch would turn into wrong integers.

    Floats may be of any type: a model may have been halved.
    """
    for name, tensor in expected.items():
        if not tensor.is_floating_point() and found[name].dtype != tensor.dtype:
            raise ValueError(
                f"{weights} does not belong to the {CONFIG} beside it: {name} is of type {found[name].dtype}, and not "
                f"{tensor.dtype}"
            )


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file that may come from anyone."""
    if path.stat().st_size > _LARGEST_CONFIG:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes; {_LARGEST_CONFIG:,} are the most")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # broken, not UTF-8, or nested without end
        raise ValueError(f"{path} is damaged, or not JSON: {_reason(error)}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object, but {type(content).__name__}")
    return content


def _as_json(config: Mapping[str, Any]) -> str:
    return json.dumps(config, indent=2) + "\n"


def refuse_long_loops(description: Any, config: Path, num_bytes: int) -> None:
    """Building takes time for each layer and each hash function, also without memory, so that there must be a limit."""
    waiting = [description]
    while waiting:
        own = waiting.pop()
        if isinstance(own, list):
            waiting.extend(own)
        if not isinstance(own, dict):
            continue
        waiting.extend(own.values())
        for name in _LOOPS:
            if isinstance(own.get(name), int) and own[name] > max(_FEW_TURNS, num_bytes // 8):
                raise ValueError(
                    f"{config} has {name} = {own[name]}, and {WEIGHTS} beside it only {num_bytes:,} bytes: "
                    "they do not belong together"
                )


def _reason(error: BaseException) -> str:
    """One line of what was wrong."""
    if isinstance(error, KeyError):
        return f"{error} is missing"
    lines = [line.strip() for line in str(error).splitlines()]
    # torch's own message on weights that do not fit begins with a heading.
    return " ".join(lines[:2]) if lines and lines[0].endswith(":") else lines[0] if lines else type(error).__name__


_NESTED: dict[str, type] = {"network": DeepHashEmbedding, "side_features": SideFeatures}


def require_kinds(constructed: type[Any], arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that are not of the types that the constructor's signature names.

    Python would take a fraction for an integer, and fail at the first question. Unknown names it refuses itself.
    """
    hints = get_type_hints(constructed.__init__)
    for name, value in arguments.items():
        if name in _NESTED and isinstance(value, Mapping):
            require_kinds(_NESTED[name], value)
        elif name == "fields" and isinstance(value, list):
            for field in value:
                require_known_name("scheme", field["scheme"], SCHEMES)
                require_kinds(SCHEMES[field["scheme"]], field["arguments"])
        elif name in hints and not _is_of_kind(value, hints[name]):
            wanted = hints[name].__name__ if isinstance(hints[name], type) else str(hints[name]).replace("typing.", "")
            raise ValueError(f"{name} is {reprlib.repr(value)}; it must be {wanted}")


def _is_of_kind(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_is_of_kind(value, own) for own in get_args(hint))
    if hint in (int, float):  # to Python, True is a number; here it is not
        return isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool)
    return isinstance(value, origin or hint)
