"""Downloads: fetched, checked and unpacked aside, within limits, and only then moved to their place."""

from __future__ import annotations

import hashlib
import tempfile
import urllib.request
import zipfile
import zlib
from pathlib import Path

from ..files.whole import remove_abandoned
from .interactions import DataError, Report

MAX_BYTES = 1_000_000_000
"""The most that is downloaded, unless a dataset is known to be larger: four times MovieLens' largest archive."""
MAX_UNPACKED_BYTES = 8_000_000_000
"""The most that an archive may unpack to: MovieLens' largest comes to little more than one."""
MAX_UNPACKED_FILES = 10_000

_BLOCK = 1 << 20


def download(
    url: str, folder: Path, *, name: str, md5: str | None, max_bytes: int = MAX_BYTES, report: Report | None = None
) -> None:
    """Put what a URL holds into a folder: the files of a .zip, anything else as the file `name`.

    Refused are a wrong MD5, more than `max_bytes` (whatever the server announces), and an archive that unpacks to too
    much or to a place outside of the folder. Where no MD5 is known, `report` is told the SHA-256 and that nothing was
    checked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    remove_abandoned(folder)
    with tempfile.TemporaryDirectory(prefix=".download-", suffix=".partial", dir=folder) as temporary:
        fetched, unpacked = Path(temporary) / "fetched", Path(temporary) / "unpacked"
        _fetch(url, fetched, max_bytes=max_bytes, report=report)
        _check(fetched, url, md5, report)
        if url.endswith(".zip"):
            _unpack(fetched, unpacked)
        else:
            fetched.rename(_with_parent(unpacked / name))
        for file in sorted(path for path in unpacked.rglob("*") if path.is_file()):
            file.replace(_with_parent(folder / file.relative_to(unpacked)))


def _fetch(url: str, target: Path, *, max_bytes: int, report: Report | None) -> None:
    done = 0
    with urllib.request.urlopen(url, timeout=30) as response, target.open("wb") as file:
        length = response.headers.get("Content-Length") or ""
        total = int(length) if length.isdecimal() else None
        _refuse_more(url, total or 0, max_bytes)
        while block := response.read(_BLOCK):
            done += len(block)
            _refuse_more(url, done, max_bytes)  # the announced length may be missing, or a lie
            file.write(block)
            if report is not None:
                report(f"downloading {url}", done, total)
    if total is not None and done != total:
        raise DataError(f"{url} ended after {done} of {total} bytes")


def _refuse_more(url: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise DataError(f"{url} has more than the {max_bytes:,} bytes that are expected at most")


def _check(file: Path, url: str, md5: str | None, report: Report | None) -> None:
    digest = hashlib.sha256() if md5 is None else hashlib.md5(usedforsecurity=False)
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    if md5 is not None and digest.hexdigest() != md5:
        raise DataError(f"{url} has the MD5 {digest.hexdigest()} instead of {md5}")
    if md5 is None and report is not None:
        report(
            f"{url}: its authors publish no checksum, so its content was not checked against anything; "
            f"its SHA-256 is {digest.hexdigest()}",
            None,
            None,
        )


def _unpack(archive: Path, directory: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
            for member in members:
                if not (directory / member.filename).resolve().is_relative_to(directory.resolve()):
                    raise DataError(f"the archive holds {member.filename!r}, which lies outside of it")
            if len(members) > MAX_UNPACKED_FILES:
                raise DataError(f"the archive holds {len(members):,} files; {MAX_UNPACKED_FILES:,} are the most")
            _refuse_bomb(sum(member.file_size for member in members))
            left = MAX_UNPACKED_BYTES
            for member in members:
                if not member.is_dir():
                    left -= _extract(opened, member, directory / member.filename, left)
    except (RuntimeError, zlib.error, EOFError) as error:  # a password, an unknown method, a damaged part
        raise DataError(f"the archive can't be unpacked ({error})") from None


def _extract(opened: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, left: int) -> int:
    """Write one file of an archive; returns how many bytes really came out, whatever the archive says about it."""
    size = 0
    with opened.open(member) as stream, _with_parent(target).open("wb") as file:
        while block := stream.read(_BLOCK):
            size += len(block)
            _refuse_bomb(size, left)
            file.write(block)
    return size


def _refuse_bomb(size: int, left: int | None = None) -> None:
    if size > (MAX_UNPACKED_BYTES if left is None else left):
        raise DataError(f"the archive unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")


def _with_parent(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
