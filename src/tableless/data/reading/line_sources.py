"""Lines as they come: from standard input, from a file that is appended to, or from a directory to which files come.

A place says how far a source was read. Whoever goes on from there gets each further line once.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..interactions import DataError

STDIN = "-"
ENDINGS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt")
"""Files of a directory that are read."""
_BLOCK = 1 << 20
_PAUSE = 0.2  # seconds between two looks at a source that has nothing new


@dataclass(frozen=True)
class SourcePlace:
    """Behind a line: which file, and how many bytes of it were read. Of standard input it is the number of lines."""

    file: str = ""
    offset: int = 0


@dataclass(frozen=True)
class SourceLine:
    """A line without its end, and the place behind it."""

    text: bytes
    place: SourcePlace


def is_of_events(source: str) -> bool:
    """Does it hold lines, by its name? A directory does, if none of its files is parquet."""
    path = Path(source)
    if path.is_dir():
        names = [own.name for own in path.iterdir()]
        return any(name.endswith(ENDINGS) for name in names) and not any(name.endswith(".parquet") for name in names)
    return source == STDIN or path.name.endswith(ENDINGS)


class LineSource:
    """The lines of `source`: "-", a file, or a directory whose files are read in the order of their names.

    With `follow` the source never ends: when there is nothing new, it waits. Only lines that have their end are given;
    without `follow`, the last line of a file need not have one. A file of a directory counts as finished as soon as
    there is a file with a later name.
    """

    def __init__(self, source: str, *, follow: bool, start: SourcePlace | None = None) -> None:
        self._path = Path(source)
        self._is_stdin = source == STDIN
        if not self._is_stdin and not self._path.exists():
            raise DataError(f"{source} does not exist")
        self._follow = follow
        self._place = start or SourcePlace()

    def __iter__(self) -> Iterator[SourceLine | None]:
        """Line by line. None: there is nothing new at the moment, so it is time for whatever waits for that."""
        return self._from_stdin() if self._is_stdin else self._from_files()

    def _from_stdin(self) -> Iterator[SourceLine | None]:
        """Reads what is there, and never waits for a block to be full."""
        rest, number = b"", self._place.offset
        while True:
            ready, _, _ = select.select([0], [], [], _PAUSE)
            if not ready:
                yield None
                continue
            block = os.read(0, _BLOCK)
            *lines, rest = (rest + block).split(b"\n") if block else ([rest, b""] if rest else [b""])
            for text in lines:
                number += 1
                yield SourceLine(text.rstrip(b"\r"), SourcePlace(offset=number))
            if not block:
                return

    def _from_files(self) -> Iterator[SourceLine | None]:
        while True:
            files = self._files()
            for path in files:
                is_last = path == files[-1]
                yield from self._rest_of(path, whole=not (is_last and self._follow))
            if not self._follow:
                return
            yield None
            time.sleep(_PAUSE)

    def _files(self) -> list[Path]:
        """Those that are not finished, in order."""
        if not self._path.is_dir():
            return [self._path]
        names = sorted(path.name for path in self._path.iterdir() if path.name.endswith(ENDINGS))
        return [self._path / name for name in names if name >= self._place.file]

    def _rest_of(self, path: Path, *, whole: bool) -> Iterator[SourceLine]:
        name = path.name if self._path.is_dir() else ""
        offset = self._place.offset if self._place.file == name else 0
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < offset:
                raise DataError(
                    f"{path} is shorter than what was read of it already ({offset:,} bytes); a file of a stream may "
                    "only grow. Put new actions into a new file of a directory, and give the directory"
                )
            file.seek(offset)
            for text in _lines(file, whole=whole):
                offset += len(text)
                self._place = SourcePlace(name, offset)
                yield SourceLine(text.rstrip(b"\r\n"), self._place)


def _lines(file: BinaryIO, *, whole: bool) -> Iterator[bytes]:
    """Lines with their ends; the last one may have none only if the file is `whole`."""
    for text in file:
        if text.endswith(b"\n") or whole:
            yield text
