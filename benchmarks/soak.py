"""Does the server stay well? Minutes of traffic with a reload every minute, or at twice what it can bear.

`python -m benchmarks.soak --minutes 10` counts requests that were dropped or failed, and compares memory before and
after. `--overload --minutes 5` offers twice the capacity measured just before: what is answered, what is turned away,
how long the accepted wait, and whether everything is answered again as soon as it is over.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import itertools
import json
import os
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.measuring import describe_machine
from benchmarks.plain_client import Connection
from benchmarks.served_run import Server, serving, write_run

IDS_PER_REQUEST, CLIENTS, MAX_IN_FLIGHT, TIME_LIMIT = 100, 8, 16, 10.0


@dataclass
class Tally:
    """What became of the requests: how many with each status ("dropped": no answer), and how long the good took."""

    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    seconds: list[float] = field(default_factory=list)

    def describe(self) -> str:
        """In one line."""
        counts = ", ".join(f"{count:,} × {outcome}" for outcome, count in sorted(self.outcomes.items()))
        if not self.seconds:
            return counts
        middle, high = np.percentile(np.array(self.seconds) * 1000, [50, 99])
        return f"{counts}; accepted: p50 {middle:.0f} ms, p99 {high:.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--overload", action="store_true", help="twice the capacity instead of reloads")
    parser.add_argument("--width", type=int, default=457, help="of the network's layers")
    arguments = parser.parse_args()
    print(describe_machine())
    with tempfile.TemporaryDirectory() as folder:
        runs = [Path(folder) / name for name in ("first", "second")]
        for seed, run in enumerate(runs):
            write_run(run, width=arguments.width, num_hashes=1024, seed=seed)
        limits = ("--max-in-flight", str(MAX_IN_FLIGHT), "--time-limit", str(TIME_LIMIT))
        with serving(runs[0], *limits) as server:
            tell = overload if arguments.overload else soak
            asyncio.run(tell(server, arguments.minutes * 60))


async def soak(server: Server, seconds: float) -> None:
    """Traffic with reloads: nothing may be dropped, and memory must not grow."""
    pause = min(60.0, seconds / 5)
    await _traffic(server, pause)  # buffers fill up
    await asyncio.to_thread(_reload, server, "first")
    before = server.memory
    reloads = asyncio.create_task(_reload_often(server, pause))
    tally = await _traffic(server, seconds)
    reloads.cancel()
    print(f"  {seconds / 60:g} minutes, {CLIENTS} clients, a reload every {pause:.0f} s: {tally.describe()}")
    print(f"  memory: {before:,.0f} MB before, {server.memory:,.0f} MB after")


async def overload(server: Server, seconds: float) -> None:
    """Requests at twice the rate that can be answered."""
    measured = min(20.0, seconds)
    capacity = (await _traffic(server, measured)).outcomes["200"] / measured
    print(f"  capacity: {capacity:,.0f} requests a second of {IDS_PER_REQUEST} ids")
    tally = await _traffic(server, seconds, clients=4 * MAX_IN_FLIGHT, rate=2 * capacity)
    offered = tally.outcomes.total() / seconds / capacity
    print(f"  {seconds / 60:g} minutes at {offered:.1f} times that: {tally.describe()} (limit: {TIME_LIMIT:g} s)")
    print(f"  in the 5 seconds afterwards: {(await _traffic(server, 5)).describe()}")


async def _traffic(server: Server, seconds: float, *, clients: int = CLIENTS, rate: float | None = None) -> Tally:
    """Clients that ask again as soon as they are answered, or, with a rate, not before it is their turn."""
    tally, start = Tally(), time.perf_counter()
    pause = clients / rate if rate else 0.0

    async def client(number: int) -> None:
        connection, due = Connection(server.address), start + pause * number / clients
        while max(due, time.perf_counter()) < start + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await _ask(connection, tally)
            due += pause
        connection.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    return tally


async def _ask(connection: Connection, tally: Tally) -> None:
    ids, start = os.urandom(8 * IDS_PER_REQUEST), time.perf_counter()
    try:
        status = await connection.embed(ids)
    except (OSError, asyncio.IncompleteReadError) as error:
        tally.outcomes[f"dropped ({type(error).__name__})"] += 1
        return
    tally.outcomes[str(status)] += 1
    if status == 200:
        tally.seconds.append(time.perf_counter() - start)


async def _reload_often(server: Server, pause: float) -> None:
    for run in itertools.cycle(("second", "first")):
        await asyncio.sleep(pause)
        await asyncio.to_thread(_reload, server, run)


def _reload(server: Server, run: str) -> None:
    body, headers = json.dumps({"run": run}).encode(), {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{server.address}/reload", body, headers), timeout=120).close()


if __name__ == "__main__":
    main()
