"""Files that appear whole or not at all, however the process that writes them ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write a file to. It takes the place of `path` if all went well, and else disappears."""
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
