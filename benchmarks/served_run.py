"""A server with a network of a given size, for the benchmarks that need one: `tableless serve` in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tableless import DeepHashEmbedding
from tableless.recommender.models import GMF, describe_recommender
from tableless.recommender.run_directory import RunDirectory, item_list


@dataclass(frozen=True)
class Server:
    """A running server."""

    address: str
    process: subprocess.Popen[str]

    @property
    def memory(self) -> float:
        """Resident memory in MB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS"))


def write_run(directory: Path, *, width: int, num_hashes: int, seed: int = 0, num_items: int = 1000) -> None:
    """A run directory as training leaves it, with the weights that training starts from: they cost the same."""
    schemes = [DeepHashEmbedding(32, width=width, num_hashes=num_hashes, seed=seed + side) for side in range(2)]
    model = GMF(users=schemes[0], items=schemes[1])
    kinds = {"user": "integer", "item": "integer"}
    config = {"model": describe_recommender(model), "kinds": kinds}
    items = item_list(range(num_items), actions=range(num_items))
    RunDirectory(directory).write(config, model.state_dict(), items=items)


@contextmanager
def serving(run: Path, *options: str, threads: int | None = None) -> Iterator[Server]:
    """The server of a run, ready; afterwards it is asked to stop."""
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
    command = [sys.executable, "-m", "tableless", "serve", str(run), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if " at http://" not in line:
            raise RuntimeError(f"the server did not start: {line}")
        address = line.split(" at ")[1].split()[0]
        _wait_until_ready(address)
        yield Server(address, process)
    finally:
        process.terminate()
        process.wait(timeout=60)
        if process.stdout is not None:
            process.stdout.close()


def _wait_until_ready(address: str) -> None:
    for _ in range(100):
        try:
            urllib.request.urlopen(f"{address}/healthz", timeout=10).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the server does not answer")
