"""Decoding: the bytes of a text file → UTF-8. Other files are taken for Latin-1, as spreadsheets write it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import BinaryIO, cast

from ..interactions import DataError
from .values import one_line_errors

_HEAD_BYTES = 1 << 20


def open_bytes(file: Path, *, gzipped: bool) -> BinaryIO:
    """The bytes of a file, unpacked if it is gzipped."""
    return cast(BinaryIO, gzip.open(file, "rb") if gzipped else file.open("rb"))


def read_beginning(file: Path, *, gzipped: bool) -> str:
    """Enough of a text file to tell what it is, from its first line that is not blank."""
    with one_line_errors(file), open_bytes(file, gzipped=gzipped) as opened:
        head = opened.read(_HEAD_BYTES)
    if not head.strip():
        raise DataError(f"{file} is empty")
    if len(head) == _HEAD_BYTES:  # a character may be cut in two at the end: end with a whole line
        head = head[: head.rfind(b"\n") + 1] or head
    return ToUtf8()(head).decode("utf-8-sig", "replace").lstrip("\r\n")


class ToUtf8:
    """Turns the blocks of one file into UTF-8, and remembers which encoding they have shown.

    A block that is neither stays as it is: the caller finds the line that is wrong.
    """

    encoding: str | None = None  # None: only ASCII so far, which is the same in both

    def __call__(self, data: bytes) -> bytes:
        """A block as UTF-8."""
        if data.isascii():
            return data
        if self.encoding is None:
            self.encoding = _guess_encoding(data)
        return data.decode("latin-1").encode() if self.encoding == "latin-1" else data


def decode_whole(content: bytes) -> str:
    """The text of a whole file."""
    return ToUtf8()(content).decode("utf-8-sig")


def _guess_encoding(data: bytes) -> str:
    """UTF-8 with a damaged character still has more characters that are whole; Latin-1 has hardly any such."""
    text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    whole = len(text) - len(text.encode("ascii", "ignore")) - broken
    return "latin-1" if broken > whole else "utf-8"
