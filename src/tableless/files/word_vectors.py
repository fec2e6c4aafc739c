"""Word vectors in the formats of word2vec, as text and binary, and of GloVe: text without a first line of sizes."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .vector_rows import Tell, VectorRows, block_rows, mapped

_LONGEST_HEAD = 100  # bytes


def read_text_words(path: Path, tell: Tell) -> VectorRows:
    """Text: a word and its numbers in each line. The first line may have the number of words and of dimensions."""
    words: list[str] = []
    with path.open(encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        first = _fields(file.readline())
        has_head = len(first) == 2 and all(field.isdecimal() for field in first)
        dim = int(first[1]) if has_head else len(first) - 1
        if dim < 1:
            raise ValueError(
                f"{path} does not begin with a word and its numbers, nor with two sizes: it is no text of vectors"
            )
        if not has_head:
            file.seek(0)
        head = 1 if has_head else 0

        def blocks() -> Iterator[NDArray[np.float32]]:
            while lines := list(islice(file, 1 + block_rows(dim) // 8)):  # text takes far more memory than numbers
                start = len(words) + head + 1
                split = [_fields(line, dim) for line in lines]
                for number, fields in enumerate(split, start):
                    _require_length(path, number, fields, dim)
                words.extend(fields[0] for fields in split)
                yield _parsed(path, split, start)

        total = int(first[0]) if has_head else None
        rows = mapped(blocks(), dim, tell=tell, total=total)
    if total is not None and len(rows) != total:
        raise ValueError(f"{path} promises {total} words and has {len(rows)}; it is cut short, or not of this format")
    return VectorRows(rows, words, rows.size * 4)


def read_binary_words(path: Path, tell: Tell) -> VectorRows:
    """Binary: a line with both sizes; then each word, a space, and its numbers as float32, little-endian."""
    words: list[str] = []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        sizes = file.readline(_LONGEST_HEAD).split()
        if len(sizes) != 2 or not all(size.isdigit() for size in sizes):
            raise ValueError(f"{path} does not begin with two sizes, so it is no binary file of word2vec")
        num_words, dim = map(int, sizes)

        def blocks() -> Iterator[NDArray[np.float32]]:
            place, step = file.tell(), block_rows(dim)
            for start in range(0, num_words, step):
                out = np.empty((min(step, num_words - start), dim), np.float32)
                for i in range(len(out)):
                    space = content.find(b" ", place)
                    if space < 0 or space + 1 + 4 * dim > len(content):
                        raise ValueError(
                            f"{path} promises {num_words} words and ends in number {start + i + 1}: it is cut short"
                        )
                    words.append(content[place:space].lstrip(b"\n").decode("utf-8", "backslashreplace"))
                    out[i] = np.frombuffer(content[space + 1 : space + 1 + 4 * dim], "<f4")
                    place = space + 1 + 4 * dim
                yield out

        rows = mapped(blocks(), dim, tell=tell, total=num_words)
    return VectorRows(rows, words, rows.size * 4)


def _fields(line: str, dim: int = -1) -> list[str]:
    """The word, which may have spaces in it, and the last `dim` fields."""
    return line.replace("\t", " ").rstrip(" \r\n").rsplit(" ", dim)


def _require_length(path: Path, number: int, fields: list[str], dim: int) -> None:
    word, numbers = fields[0], len(fields) - 1
    if " " in word:  # a word with spaces, or more numbers than elsewhere
        parts = word.split(" ")
        while len(parts) > 1 and _is_number(parts[-1]):
            parts.pop()
            numbers += 1
    if numbers != dim:
        raise ValueError(
            f"{path}: line {number} has {numbers} numbers, and lines before it {dim}; all vectors must be equally long"
        )


def _parsed(path: Path, lines: list[list[str]], start: int) -> NDArray[np.float32]:
    try:
        return np.array([fields[1:] for fields in lines], np.float32)
    except ValueError:
        for number, fields in enumerate(lines, start):
            wrong = next((field for field in fields[1:] if not _is_number(field)), None)
            if wrong is not None:
                raise ValueError(f"{path}: {wrong!r} in line {number} is no number") from None
        raise


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
