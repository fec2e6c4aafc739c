"""Where ids come from and vectors go: local paths and URIs (s3://, gs://, hdfs://, …) alike, by pyarrow's file systems.

Buckets that need more than the usual credentials say so in the URI: s3://bucket/ids/*.parquet?endpoint_override=…
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from ...hints import install_hint

# Parameters of pyarrow's URIs that say which service is meant, and are no secrets.
_HARMLESS = frozenset({"region", "scheme", "endpoint_override", "allow_bucket_creation", "allow_bucket_deletion"})


@dataclass(frozen=True)
class Place:
    """A path and the file system (of pyarrow) that it is a path in."""

    filesystem: Any
    path: str

    def __truediv__(self, name: str) -> Place:
        return replace(self, path=f"{self.path}/{name}")

    def files(self) -> dict[str, Source]:
        """Everything below, by its name relative to this place; nothing, if there is no such directory."""
        from pyarrow import fs

        found = self.filesystem.get_file_info(fs.FileSelector(self.path, recursive=True, allow_not_found=True))
        start = len(self.path) + 1
        return {info.path[start:]: Source(info.size, info.mtime_ns) for info in found if info.is_file}

    def read(self) -> bytes:
        """All of a (small) file."""
        with self.filesystem.open_input_stream(self.path) as stream:
            return stream.read()

    @contextmanager
    def written_whole(self) -> Iterator[Any]:
        """A stream to write to; the file appears at the end, or not at all.

        Until then it has a name that no other process chooses. Ray may start a second worker for a block while the
        first, which it has lost, still writes: both finish, and the second file replaces an equal one.
        """
        part = f"{self.path}.{uuid.uuid4().hex[:12]}.part"
        self.filesystem.create_dir(os.path.dirname(self.path), recursive=True)
        try:
            with self.filesystem.open_output_stream(part) as stream:
                yield stream
            self.filesystem.move(part, self.path)
        except BaseException:
            with suppress(OSError):  # the file may not exist; the error that led here says more
                self.filesystem.delete_file(part)
            raise


@dataclass(frozen=True)
class Source:
    """Size and time of a file, by which a change is noticed."""

    size: int
    modified: int | None


def locate(text: str) -> Place:
    """The place that a path or URI means."""
    try:
        from pyarrow import fs
    except ImportError:  # pragma: no cover - needs an environment without the extra
        raise ImportError(f"reading and writing parquet needs pyarrow: {install_hint('data')}") from None
    if "://" not in text:
        return Place(fs.LocalFileSystem(), os.path.abspath(text))
    try:
        filesystem, path = fs.FileSystem.from_uri(text)
    except ValueError as error:  # pyarrow repeats the URI as it was given
        raise ValueError(str(error).replace(text, without_secrets(text))) from None
    return Place(filesystem, path.rstrip("/"))


def without_secrets(text: str) -> str:
    """A path or URI as it may be written down and printed, and by which the same place is known again.

    Left out are the user and password before the bucket, and all of the query but what is known to be harmless: a key
    may be changed, or move to the environment, and the place is still the same.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    if "@" not in authority and "@" in path and not _is_host(authority):  # a slash inside the password
        authority, slash, path = rest.rpartition("@")[2].partition("/")
    kept = "&".join(part for part in query.split("&") if part.partition("=")[0] in _HARMLESS and "@" not in part)
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}" + (f"?{kept}" if kept else "")


def _is_host(authority: str) -> bool:
    _, colon, port = authority.rpartition(":")
    return not colon or port.isdigit()


def find_sources(text: str) -> tuple[Place, dict[str, Source]]:
    """The files that `text` means, and the place that their names are relative to.

    It is a file, a directory (then every parquet file below it), or a pattern with `*`, which stands for anything but
    a slash. Names that start with `_` or `.` are not data, as everywhere in the parquet world.
    """
    from pyarrow import fs

    if "*" not in text:
        place = locate(text)
        info = place.filesystem.get_file_info(place.path)
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError(f"there is no file {without_secrets(text)}")
        if info.is_file:
            folder, name = os.path.split(place.path)
            return replace(place, path=folder), {name: Source(info.size, info.mtime_ns)}
        found = {name: source for name, source in place.files().items() if name.endswith(".parquet")}
    else:
        place, pattern = _split_pattern(text)
        found = {name: source for name, source in place.files().items() if _matches(name, pattern)}
    found = {name: found[name] for name in sorted(found) if not any(part[0] in "_." for part in name.split("/"))}
    if not found:
        shown = without_secrets(text) + ("" if "*" in text else "/*.parquet")
        raise FileNotFoundError(f"there are no files {shown}")
    return place, found


def _split_pattern(text: str) -> tuple[Place, list[str]]:
    """The directory before the first `*`, and the rest, name by name."""
    pattern, _, query = text.partition("?") if "://" in text else (text, "", "")
    folder = pattern[: pattern.index("*")].rpartition("/")[0]
    rest = pattern[len(folder) :].strip("/")
    local_root = "/" if pattern.startswith("/") else "."
    return locate(f"{folder}?{query}" if query else folder or local_root), rest.split("/")


def _matches(name: str, pattern: list[str]) -> bool:
    names = name.split("/")
    return len(names) == len(pattern) and all(map(fnmatchcase, names, pattern))
