"""How many strings a second become ids? One core: run with POLARS_MAX_THREADS=1 (set here before polars starts)."""

from __future__ import annotations

import os
from functools import partial

os.environ["POLARS_MAX_THREADS"] = "1"

import numpy as np
import polars as pl
import torch

from benchmarks.measuring import describe_machine, time_alternately
from tableless import to_ids

COUNT, NUM_DISTINCT = 2_000_000, 10_000


def main() -> None:
    torch.set_num_threads(1)
    distinct = pl.Series([f"user_{number}" for number in range(COUNT)])
    repeated = distinct[:NUM_DISTINCT].gather(np.random.default_rng(0).integers(0, NUM_DISTINCT, COUNT))
    columns = {
        "distinct, list": distinct.to_list(),
        "distinct, polars": distinct,
        "repeated, list": repeated.to_list(),
        "repeated, polars": repeated,
        "repeated, polars categorical": repeated.cast(pl.Categorical),
    }
    tasks = {name: partial(to_ids, column) for name, column in columns.items()}
    seconds = time_alternately(tasks, repetitions=5)
    print(describe_machine())
    print(f"{COUNT:,} short strings; where repeated, {NUM_DISTINCT:,} different ones")
    for name, values in seconds.items():
        rates = sorted(COUNT / value / 1e6 for value in values)
        middle = rates[len(rates) // 2]
        print(f"  {name:<29} {middle:6.1f} million a second ({rates[0]:.1f}–{rates[-1]:.1f})")
    print("targets: distinct ≥ 3, repeated an order of magnitude above that")


if __name__ == "__main__":
    main()
