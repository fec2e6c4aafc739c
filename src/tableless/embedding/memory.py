"""Memory that is freed and needed again a moment later stays with the process."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

# Names and defaults of glibc's mallopt.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_DEFAULTS = {_TRIM_THRESHOLD: 128 * 1024, _TOP_PAD: 0, _MMAP_MAX: 65_536}
_KEEPING = {_TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 64 * 1024 * 1024, _MMAP_MAX: 0}


@contextlib.contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Within it, glibc does not return large freed blocks to the kernel. Elsewhere nothing happens.

    A training step allocates the same few large blocks again and again; got from the kernel each time, every page of
    them costs a fault, which together takes as long as the arithmetic.
    """
    library = _glibc()
    if library is None:
        yield
        return
    _set(library, _KEEPING)
    try:
        yield
    finally:
        _set(library, _DEFAULTS)
        library.malloc_trim(0)


def _glibc() -> Any:
    try:
        library = ctypes.CDLL(None)
        return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
    except (OSError, TypeError):  # no such thing as the process's own symbols
        return None


def _set(library: Any, options: dict[int, int]) -> None:
    for option, value in options.items():
        library.mallopt(option, value)
