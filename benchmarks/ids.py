"""How many strings a second become ids? One core: POLARS_MAX_THREADS=1 is set here, before polars starts."""

from __future__ import annotations

import os
from functools import partial

os.environ["POLARS_MAX_THREADS"] = "1"

import numpy as np
import polars as pl

from benchmarks.measuring import Row, Spread, at_least, on_threads, show, time_alternately
from tableless import to_ids

DISTINCT_TARGET, REPEATED_TARGET = 3, 30  # millions a second


def measure(*, count: int = 2_000_000, num_distinct: int = 10_000, repetitions: int = 5) -> list[Row]:
    distinct = pl.Series([f"user_{number}" for number in range(count)])
    repeated = distinct[:num_distinct].gather(np.random.default_rng(0).integers(0, num_distinct, count))
    columns = {
        "distinct strings, list": distinct.to_list(),
        "distinct strings, polars": distinct,
        "repeated strings, list": repeated.to_list(),
        "repeated strings, polars": repeated,
        "repeated strings, polars categorical": repeated.cast(pl.Categorical),
    }
    with on_threads(1):
        seconds = time_alternately(
            {name: partial(to_ids, column) for name, column in columns.items()}, repetitions=repetitions
        )
    return [
        at_least(
            f"{name}, to ids",
            Spread.of(count / value / 1e6 for value in values),
            DISTINCT_TARGET if name.startswith("distinct") else REPEATED_TARGET,
            " million a second",
        )
        for name, values in seconds.items()
    ]


if __name__ == "__main__":
    show(measure())
