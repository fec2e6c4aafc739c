"""A scheme as a directory: `config.json` says what it is, `model.safetensors` holds its weights. Never pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path

from safetensors.torch import load_file, save_file

from .hashing import ENCODING_VERSION
from .scheme import EmbeddingScheme
from .schemes import SCHEMES


def save_scheme(scheme: EmbeddingScheme, directory: str | os.PathLike[str]) -> None:
    """Write a scheme; each file appears whole or not at all."""
    name = next(name for name, kind in SCHEMES.items() if kind is type(scheme))
    config = {"scheme": name, "encoding_version": ENCODING_VERSION, "arguments": scheme.config}
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {key: value.contiguous() for key, value in scheme.state_dict().items()}
    save_file(tensors, folder / "model.safetensors.part")
    (folder / "config.json.part").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    for file in ("model.safetensors", "config.json"):
        os.replace(folder / f"{file}.part", folder / file)


def load_scheme(directory: str | os.PathLike[str]) -> EmbeddingScheme:
    """Read a scheme back, bit-equal, ready to embed (in eval mode)."""
    folder = Path(directory)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config["encoding_version"] != ENCODING_VERSION:
        raise ValueError(
            f"{folder} was encoded by version {config['encoding_version']} of the encoding; this library speaks "
            f"version {ENCODING_VERSION}. Install the release of tableless that wrote it"
        )
    if config["scheme"] not in SCHEMES:
        raise ValueError(f"{folder} holds a scheme {config['scheme']!r}; known are {', '.join(SCHEMES)}")
    scheme = SCHEMES[config["scheme"]](**config["arguments"])
    scheme.load_state_dict(load_file(folder / "model.safetensors"))
    return scheme.eval()
