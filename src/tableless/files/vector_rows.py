"""Trained vectors as rows in memory or in a mapped file, and the raw id of each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 21
"""Numbers that are read at once."""

Tell = Callable[[str, int, int | None], None]
"""Is told what is being done, how much of it is done, and how much there is (None if that is not known)."""


@dataclass(frozen=True)
class VectorRows:
    """Vectors and their raw ids.

    Attributes:
        rows: Float32 [n, dim]; it may be a mapped file.
        ids: A column of n raw ids, of any kind that `tableless.to_ids` takes.
        num_bytes: What the vectors took where they came from. Numbers that were text count four bytes.
    """

    rows: NDArray[np.float32]
    ids: Any
    num_bytes: int


def block_rows(dim: int) -> int:
    """How many rows are read at once."""
    return max(1, BLOCK // max(1, dim))


def rows_of(array: NDArray[Any], name: str, tell: Tell) -> NDArray[np.float32]:
    """An array [n, dim] of any kind of numbers as float32 rows, without a copy if that is what it is."""
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise ValueError(
            f"{name} has shape {array.shape} and type {array.dtype}; vectors are numbers in two dimensions: a row for "
            "each id"
        )
    if array.dtype == np.float32 and array.flags.c_contiguous:
        return array
    step = block_rows(array.shape[1])
    return mapped(
        (np.asarray(array[start : start + step], np.float32) for start in range(0, len(array), step)),
        array.shape[1],
        tell=tell,
        total=len(array),
    )


def mapped(
    blocks: Iterable[NDArray[np.float32]], dim: int, *, tell: Tell, total: int | None = None
) -> NDArray[np.float32]:
    """Blocks [m, dim] one after the other in a temporary file, which is mapped into memory and needs no name."""
    done = 0
    with tempfile.TemporaryFile() as file:
        for block in blocks:
            file.write(np.ascontiguousarray(block, np.float32).data)
            done += len(block)
            tell("reading", done, total)
        file.flush()
        if not done:
            return np.empty((0, dim), np.float32)
        return np.memmap(file, np.float32, "r+", shape=(done, dim))
