"""How much memory do preparing and training on 100 million actions take, with ten million different ids?

Makes the file, trains `dhe` on it for some minutes, and reports the peak of each process above a bare import of torch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.measuring import describe_machine

CHUNK = 5_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actions", type=int, default=100_000_000)
    parser.add_argument("--ids", type=int, default=10_000_000, help="users and items together")
    parser.add_argument("--minutes", type=float, default=5, help="how long to let training run")
    arguments = parser.parse_args()
    print(describe_machine())
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        write_actions(data, arguments.actions, arguments.ids)
        size = sum(file.stat().st_size for file in data.iterdir()) / 1e9
        print(f"{arguments.actions:,} actions, {arguments.ids:,} ids, {size:.1f} GB of parquet")
        bare = peak_memory([sys.executable, "-c", "import torch, numba, polars"], seconds=60)
        print(f"  importing torch, numba and polars: {bare:,.0f} MB")
        train = [sys.executable, "-m", "tableless", "train", str(data), "--budget", "2000000"]
        for name, more in (("prepare and train", []), ("stream", ["--stream"])):
            peak = peak_memory([*train, *more, "--json"], seconds=60 * arguments.minutes)
            print(f"  {name}: {peak - bare:,.0f} MB above that")


def write_actions(folder: Path, num_actions: int, num_ids: int) -> None:
    """Half the ids are users, half items, both with a long tail, and a time for each action."""
    folder.mkdir()
    random = np.random.default_rng(0)
    for number, start in enumerate(range(0, num_actions, CHUNK)):
        count = min(CHUNK, num_actions - start)
        frame = pl.DataFrame(
            {
                "user_id": (random.random(count) ** 2 * (num_ids // 2)).astype(np.int64),
                "item_id": (random.random(count) ** 3 * (num_ids // 2)).astype(np.int64),
                "timestamp": random.integers(0, 2**31, count),
            }
        )
        frame.write_parquet(folder / f"{number:04}.parquet")


def peak_memory(command: list[str], *, seconds: float) -> float:
    """The highest resident memory of a process in MB, which is stopped after `seconds`."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    status, peak, end = Path(f"/proc/{process.pid}/status"), 0.0, time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        lines = status.read_text().splitlines()
        peak = max([peak, *(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM"))])
        time.sleep(0.2)
    process.kill()
    process.wait()
    return peak


if __name__ == "__main__":
    main()
