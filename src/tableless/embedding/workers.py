"""Rows shared out over threads that each run torch on one core: better than splitting every small product."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import torch


def in_parallel(work: Callable[[int, int], None], count: int, *, fewest: int) -> None:
    """Call `work(start, stop)` for ranges that make up 0 … count, on as many threads as torch may use.

    A range has at least `fewest` rows: to wake a thread up takes as long as some. Where there are not enough for two,
    the caller does them, and torch may split each operation over its own threads, which are quicker to wake.
    """
    shares = min(torch.get_num_threads(), count // fewest)
    if shares < 2:
        work(0, count)
        return
    bounds = [count * share // shares for share in range(shares + 1)]
    futures = [_pool(torch.get_num_threads()).submit(work, start, stop) for start, stop in pairwise(bounds)]
    for future in futures:
        future.result()


@functools.cache
def _pool(size: int) -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(size, thread_name_prefix="tableless", initializer=_use_one_core, initargs=(size,))
    everyone = threading.Barrier(size)
    for ready in [pool.submit(everyone.wait) for _ in range(size)]:  # all threads are there, and torch's number is back
        ready.result()
    return pool


def _use_one_core(usual: int) -> None:
    """Let torch use one core in this thread. It takes that for all threads to come, too, so it is told again."""
    torch.set_num_threads(1)
    other = threading.Thread(target=torch.set_num_threads, args=(usual,))
    other.start()
    other.join()
