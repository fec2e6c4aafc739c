"""Named tensors as a safetensors file with a checksum, by which a byte that has changed since is noticed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .whole import replacing

_CHECKSUM = "xxh3_128"  # its name among the file's metadata


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """A safetensors file, whole or not at all, with a checksum of what is in it."""
    plain = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    with replacing(path) as part:
        part.touch()
        mode = part.stat().st_mode
        try:
            save_file(plain, part, metadata={_CHECKSUM: _checksum(plain)})
        except SafetensorError as error:  # a full disk, for instance
            raise OSError(f"{path} could not be written: {error}") from None
        part.chmod(mode)  # safetensors lets only the owner read its files, and another user may serve the model


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read what `save_tensors` wrote; a file that has changed since is refused (older ones have no checksum)."""
    with _opened(path) as file:
        expected = (file.metadata() or {}).get(_CHECKSUM)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    if expected is not None and _checksum(tensors) != expected:
        raise ValueError(f"{path} is damaged: what it holds is not what was written; take it from a backup")
    return tensors


def read_shapes(path: Path) -> dict[str, list[int]]:
    """The names and shapes of a file's tensors, without reading the tensors."""
    with _opened(path) as file:
        return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(
            f"{path} is cut short, damaged, or no safetensors file ({error}); take it from a backup"
        ) from None


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """Over names, types, shapes and content, in an order that does not depend on the file's."""
    digest = xxhash.xxh3_128()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
