"""How much of the speed of `FastEmbedding` is left behind HTTP?

100 ids a request, binary in and out, no hot ids; requests come from wrk on the same cores, 16 at a time. In the same
process, `FastEmbedding` is called with the same ids, 100 at a time. The large network is that of `inference.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

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
    """Each repetition is `seconds` of calls, then `seconds` of requests."""
    if shutil.which("wrk") is None:
        return [not_measured("throughput over HTTP, binary", "wrk is not installed", f"≥ {TARGET} ×")]
    threads, rows = min(2, os.cpu_count() or 1), []
    for name, (width, num_hashes) in networks.items():
        with tempfile.TemporaryDirectory() as folder, on_threads(threads):
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
    called, asked = list[float](), list[dict[str, float]]()
    for _ in range(repetitions):
        called.append(_calls_per_second(fast, ids, seconds))
        asked.append(_wrk(server, script, connections, seconds))
    alone = [_wrk(server, script, 1, seconds / 2) for _ in range(repetitions)]
    failed = sum(round(one["failed"]) for one in asked + alone)
    if failed:
        raise RuntimeError(f"{failed} requests failed")
    rate = [one["requests"] / one["seconds"] for one in asked]
    rows = [
        at_least(f"{name}: HTTP against calls, requests of 100 ids", Spread.of_ratios(rate, called), TARGET, " ×"),
        figure(f"{name}: calls", Spread.of(called), " a second"),
        figure(f"{name}: HTTP, {connections} at a time", Spread.of(rate), " a second"),
    ]
    for how, runs in ((f"{connections} at a time", asked), ("one at a time", alone)):
        rows += [
            figure(f"{name}: {percentile}, {how}", Spread.of(one[percentile] for one in runs), " ms")
            for percentile in ("p50", "p99")
        ]
    return rows


def _calls_per_second(fast: FastEmbedding, ids: np.ndarray[tuple[int], np.dtype[np.int64]], seconds: float) -> float:
    batches, count, start = torch.split(torch.from_numpy(ids), IDS_PER_REQUEST), 0, time.perf_counter()
    while time.perf_counter() < start + seconds:
        fast(batches[count % len(batches)])
        count += 1
    return count / (time.perf_counter() - start)


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
