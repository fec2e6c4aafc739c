"""Files and directories that appear whole or not at all, even if the process that writes them is killed.

Tensors are written as safetensors with a checksum, by which a byte that has changed since is noticed. In a file of JSON
lines, a line that a crash has cut short is left out when the file is read.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write a file to. It takes the place of `path` if all went well, or else is removed."""
    part = path.with_name(path.name + ".part")
    try:
        yield part
        with part.open("rb+") as written:
            os.fsync(written.fileno())  # its name must not reach the disk before its content
        os.replace(part, path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = error.filename or str(path)  # writing to a full disk does not say what was written
        raise


def write_text(path: Path, text: str) -> None:
    """A text file, whole or not at all."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def staged(directory: Path) -> Iterator[Path]:
    """A directory to write in. It takes the name `directory` if everything went well, or else is removed."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(directory.parent)
    staging = directory.parent / f".{directory.name}.{uuid.uuid4().hex}.partial"
    replaced = directory.parent / f"{staging.name}.old.partial"
    staging.mkdir()
    try:
        yield staging
        if directory.exists():
            directory.rename(replaced)
        staging.rename(directory)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def remove_abandoned(parent: Path) -> None:
    """Remove what killed processes left in `parent` over an hour ago; a live process writes all the time."""
    an_hour_ago = time.time() - 3600
    for left in parent.glob(".*.partial"):
        try:
            if max(path.stat().st_mtime for path in (left, *left.rglob("*"))) < an_hour_ago:
                shutil.rmtree(left, ignore_errors=True)
        except FileNotFoundError:  # its owner has just finished
            continue


Line = dict[str, Any]


def read_lines(path: Path) -> list[Line]:
    """Every whole line of the file; nothing, if there is no file."""
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(text))
        except (json.JSONDecodeError, RecursionError):
            continue
    return [line for line in lines if isinstance(line, dict)]


def append_line(path: Path, line: Line) -> None:
    """Add a line, and begin a new one first if the last was cut short. It is on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        is_cut_short = size > 0 and file.read(1) != b"\n"
        file.write(("\n" * is_cut_short + json.dumps(line) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())


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
