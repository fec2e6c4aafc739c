"""A scheme as a directory: `config.json` says what it is, `model.safetensors` holds its weights. Never pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from .hashing import ENCODING_VERSION
from .scheme import EmbeddingScheme
from .schemes import SCHEMES


def describe_scheme(scheme: EmbeddingScheme) -> dict[str, Any]:
    """A scheme without its weights, as plain values: its name and its arguments."""
    name = next(name for name, kind in SCHEMES.items() if kind is type(scheme))
    return {"scheme": name, "encoding_version": ENCODING_VERSION, "arguments": scheme.config}


def build_scheme(description: Mapping[str, Any]) -> EmbeddingScheme:
    """The scheme that was described, with its starting weights."""
    if description["encoding_version"] != ENCODING_VERSION:
        raise ValueError(
            f"this was saved with version {description['encoding_version']} of the encoding; this library speaks "
            f"version {ENCODING_VERSION}. Install the release of tableless that wrote it"
        )
    if description["scheme"] not in SCHEMES:
        raise ValueError(f"no scheme is called {description['scheme']!r}; known are {', '.join(SCHEMES)}")
    return SCHEMES[description["scheme"]](**description["arguments"])


def save_scheme(scheme: EmbeddingScheme, directory: str | os.PathLike[str]) -> None:
    """Write a scheme to a directory."""
    write_model(Path(directory), describe_scheme(scheme), scheme.state_dict())


def load_scheme(directory: str | os.PathLike[str]) -> EmbeddingScheme:
    """Read a scheme back, bit-equal, ready to embed (in eval mode)."""
    scheme = build_scheme(json.loads((Path(directory) / "config.json").read_text(encoding="utf-8")))
    scheme.load_state_dict(load_file(Path(directory) / "model.safetensors"))
    return scheme.eval()


def write_model(directory: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write `config.json` and `model.safetensors`; each appears whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    save_tensors(tensors, directory / "model.safetensors")
    write_text(directory / "config.json", json.dumps(config, indent=2) + "\n")


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """A safetensors file, whole or not at all."""
    part = path.with_name(path.name + ".part")
    save_file({key: value.contiguous() for key, value in tensors.items()}, part)
    os.replace(part, path)


def write_text(path: Path, text: str) -> None:
    """A text file, whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
