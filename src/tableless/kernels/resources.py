"""The machine's threads and memory: rows shared out over threads, and freed memory that the process keeps."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from .idle_cores import on_idle_cores, usual_threads

_THREADS = "tableless"  # how the names of our threads begin


def in_parallel(work: Callable[[int, int], None], count: int, *, fewest: int) -> None:
    """Call `work(start, stop)` for ranges that make up 0 … count, on as many threads as torch may use.

    Each of our threads runs torch on one core, which is better than to split every small product over all cores. A
    range has at least `fewest` rows, since waking a thread takes as long as some rows do. If there are not enough rows
    for two ranges, the caller's thread does them all, and torch may split each operation over its own threads, which
    are quicker to wake, as far as cores are idle. So does one of our own threads: it would wait for threads that wait
    for it.
    """
    is_own = threading.current_thread().name.startswith(_THREADS)
    threads = usual_threads()
    shares = 1 if is_own else min(threads, count // fewest)
    if shares < 2:
        with on_idle_cores():
            work(0, count)
        return
    bounds = [count * share // shares for share in range(shares + 1)]
    futures = [_pool(threads).submit(work, start, stop) for start, stop in pairwise(bounds)]
    for future in futures:
        future.result()


@contextlib.contextmanager
def on_threads(number: int) -> Iterator[None]:
    """Let torch use this many threads, and afterwards as many as before."""
    if number < 1:
        raise ValueError(f"{number} threads were asked for; it must be at least 1")
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@functools.cache
def _pool(size: int) -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(size, thread_name_prefix=_THREADS, initializer=_use_one_core, initargs=(size,))
    everyone = threading.Barrier(size)
    # Wait until all threads exist and torch's number of threads is the usual one again.
    for ready in [pool.submit(everyone.wait) for _ in range(size)]:
        ready.result()
    return pool


def _use_one_core(usual: int) -> None:
    """Let torch use one core in this thread. Torch applies that to all later threads, too, so we set it back."""
    torch.get_num_threads()  # at the first question a thread takes the usual number: not after we have set ours
    torch.set_num_threads(1)
    other = threading.Thread(target=torch.set_num_threads, args=(usual,))
    other.start()
    other.join()


@dataclass(frozen=True)
class _Option:
    """One option of glibc's `mallopt`: its number, our value, its default, and its name in the environment."""

    number: int
    keeping: int
    default: int
    name: str

    def usual(self) -> int:
        """What the environment asks for, else the default: what glibc starts with."""
        tunables = dict(part.split("=", 1) for part in os.environ.get("GLIBC_TUNABLES", "").split(":") if "=" in part)
        text = tunables.get(f"glibc.malloc.{self.name}") or os.environ.get(f"MALLOC_{self.name.upper()}_") or ""
        try:
            return min(int(text, 0), _LARGEST_INT)
        except ValueError:
            return self.default


_LARGEST_INT = 2**31 - 1  # mallopt takes no more
_OPTIONS = (
    _Option(-1, _LARGEST_INT, 128 * 1024, "trim_threshold"),
    _Option(-2, 64 * 1024 * 1024, 128 * 1024, "top_pad"),
    _Option(-4, 0, 65_536, "mmap_max"),
)
_lock = threading.Lock()
_users = 0  # how many contexts of `keeping_freed_memory` are open: glibc's options are those of the whole process


@contextlib.contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Inside this context, glibc does not return large freed blocks to the kernel. Without glibc nothing happens.

    A training step allocates the same few large blocks again and again. If they come from the kernel each time, every
    page costs a page fault, and these take as long as the arithmetic.

    When the last context ends, the options become what the environment asks for (GLIBC_TUNABLES,
    MALLOC_TRIM_THRESHOLD_ and so on), else glibc's defaults. They may have been different before: glibc does not tell.
    A program that calls `mallopt` itself must call it again, and glibc no longer adapts the size from which it uses
    `mmap`.
    """
    library = _glibc()
    if library is None:
        yield
        return
    _count(library, 1)
    try:
        yield
    finally:
        _count(library, -1)


def give_memory_back() -> None:
    """Return freed memory to the kernel. Without glibc nothing happens."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def _count(library: Any, change: int) -> None:
    """The first context sets our options, the end of the last one sets the usual values."""
    global _users
    with _lock:
        _users += change
        if _users == 1 and change == 1:
            for option in _OPTIONS:
                library.mallopt(option.number, option.keeping)
        elif _users == 0:
            for option in _OPTIONS:
                library.mallopt(option.number, option.usual())
            library.malloc_trim(0)


def _glibc() -> Any:
    try:
        library = ctypes.CDLL(None)
        return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
    except (OSError, TypeError):  # Windows has no such library
        return None
