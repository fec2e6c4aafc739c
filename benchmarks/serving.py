"""How much of the speed of `FastEmbedding` is left behind HTTP?

100 ids a request, binary in and out, no hot ids; requests come from wrk, 16 at a time. Without HTTP, as many threads of
one process call `FastEmbedding` with the same ids, 100 at a time. Then the same with one request, and one caller, at a
time. Everything runs on the same two cores. The large network is that of `inference.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.measuring import Row, Spread, at_least, figure, not_measured, on_threads, show
from benchmarks.served_run import Server, serving, write_run
from tableless import DeepHashEmbedding
from tableless.serving import FastEmbedding

TARGET = 0.6
IDS_PER_REQUEST, NUM_BODIES = 100, 1000
NETWORKS = {"1024 hashes, 5 × 457": (457, 1024), "64 hashes, 5 × 64": (64, 64)}

# wrk calls `request` for every request and `done` at the end.
_SCRIPT = """
local bodies, size, next = {}, %d, 0
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/octet-stream"
wrk.headers["Accept"] = "application/octet-stream"
function init(args)
  local all = io.open("%s", "rb"):read("*a")
  for start = 1, #all, size do
    bodies[#bodies + 1] = wrk.format(nil, "/embed", nil, all:sub(start, start + size - 1))
  end
end
function request()
  next = next %% #bodies + 1
  return bodies[next]
end
function done(summary, latency)
  local failed = summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout
  io.write(string.format('JSON {"requests": %%d, "seconds": %%f, "p50": %%f, "p99": %%f, "failed": %%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, failed))
end
"""


def measure(
    *, networks: dict[str, tuple[int, int]] = NETWORKS, seconds: float = 5, repetitions: int = 5, connections: int = 16
) -> list[Row]:
    """Each repetition is `seconds` of calls, then `seconds` of requests, by as many callers."""
    if shutil.which("wrk") is None:
        return [not_measured("throughput over HTTP, binary", "wrk is not installed", f"≥ {TARGET} ×")]
    threads, rows = min(2, os.cpu_count() or 1), list[Row]()
    for name, (width, num_hashes) in networks.items():
        with tempfile.TemporaryDirectory() as folder, on_threads(threads), _on_cores(threads):
            write_run(Path(folder) / "run", width=width, num_hashes=num_hashes)
            ids = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, NUM_BODIES * IDS_PER_REQUEST)
            script = _write_script(Path(folder), ids)
            fast = FastEmbedding(DeepHashEmbedding(32, width=width, num_hashes=num_hashes))
            with serving(Path(folder) / "run", "--hot-ids", "0", threads=threads) as server:
                rows += _compare(name, server, script, fast, ids, seconds, repetitions, connections)
    return rows


def _compare(
    name: str,
    server: Server,
    script: Path,
    fast: FastEmbedding,
    ids: np.ndarray[tuple[int], np.dtype[np.int64]],
    seconds: float,
    repetitions: int,
    connections: int,
) -> list[Row]:
    _wrk(server, script, connections, 1)  # compile, fill caches
    rows = []
    for callers, how in ((connections, f"{connections} at a time"), (1, "one at a time")):
        called, asked = list[float](), list[dict[str, float]]()
        for _ in range(repetitions):
            called.append(calls_per_second(fast, ids, seconds, callers=callers))
            asked.append(_wrk(server, script, callers, seconds))
        failed = sum(round(one["failed"]) for one in asked)
        if failed:
            raise RuntimeError(f"{failed} requests failed")
        rate = [one["requests"] / one["seconds"] for one in asked]
        against, question = Spread.of_ratios(rate, called), f"{name}: HTTP against calls, both {how}"
        rows += [
            at_least(question, against, TARGET, " ×") if callers == connections else figure(question, against, " ×"),
            figure(f"{name}: calls, {how}", Spread.of(called), " a second"),
            figure(f"{name}: HTTP, {how}", Spread.of(rate), " a second"),
            *(
                figure(f"{name}: {percentile} over HTTP, {how}", Spread.of(one[percentile] for one in asked), " ms")
                for percentile in ("p50", "p99")
            ),
        ]
    return rows


def calls_per_second(
    fast: Callable[[Tensor], Tensor],
    ids: np.ndarray[tuple[int], np.dtype[np.int64]],
    seconds: float,
    *,
    callers: int,
) -> float:
    """How many batches a number of threads get, all of them together, each waiting for its own answers."""
    batches = torch.split(torch.from_numpy(ids), IDS_PER_REQUEST)
    start = time.perf_counter()

    def call(caller: int) -> int:
        count, first = 0, caller * len(batches) // callers
        while not count or time.perf_counter() < start + seconds:
            fast(batches[(first + count) % len(batches)])
            count += 1
        return count

    # Callers that fill the cores by their number are quickest with one thread of torch each.
    with on_threads(max(1, torch.get_num_threads() // callers)), ThreadPoolExecutor(callers) as threads:
        count = sum(threads.map(call, range(callers)))
    return count / (time.perf_counter() - start)


@contextmanager
def _on_cores(number: int) -> Iterator[None]:
    """Keep this thread, and every thread and process that it starts, on so many cores, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:number])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _wrk(server: Server, script: Path, connections: int, seconds: float) -> dict[str, float]:
    duration = f"{max(1, round(seconds))}s"
    command = ["wrk", "-t1", f"-c{connections}", f"-d{duration}", "--timeout", "30s", "-s", str(script), server.address]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(output.split("JSON ")[1])


def _write_script(folder: Path, ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Path:
    bodies, script = folder / "bodies", folder / "requests.lua"
    bodies.write_bytes(ids.astype("<i8").tobytes())
    script.write_text(_SCRIPT % (8 * IDS_PER_REQUEST, bodies))
    return script


if __name__ == "__main__":
    show(measure())
