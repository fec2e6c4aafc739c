"""Staging: a directory that appears under its name only when it is complete, however its process ends."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def staged(directory: Path) -> Iterator[Path]:
    """A directory to write in, which takes the name `directory` only if everything went well, and else disappears."""
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
    """Remove what a killed process left in `parent`: a live one touches its files all the time."""
    an_hour_ago = time.time() - 3600
    for left in parent.glob(".*.partial"):
        try:
            if max(path.stat().st_mtime for path in (left, *left.rglob("*"))) < an_hour_ago:
                shutil.rmtree(left, ignore_errors=True)
        except FileNotFoundError:  # its owner has just finished
            continue
