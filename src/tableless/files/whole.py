"""Files and directories that appear whole or not at all, even if the process that writes them is killed.

At the end, files of JSON lines: a line that a crash has cut short is left out when the file is read.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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
    """Add a line, and begin a new one first if the last was cut short."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_bytes() if path.exists() else b""
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if before and not before.endswith(b"\n") else "") + json.dumps(line) + "\n")
