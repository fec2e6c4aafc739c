"""How long do ten million ids take until each has a row, in how much memory? How long does it take to find rows?

One core. The ids are put in by a process of its own, so that the peak of its memory is that of this work.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.measuring import Row, Spread, at_most, figure, on_threads, show, time_alternately
from tableless.embedding.id_rows import IdRows

SECONDS_TARGET, MEGABYTES_TARGET = 60, 1_000

BUILD = """
import json, resource, sys, time
import torch
from tableless.embedding.id_rows import IdRows

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000  # Linux counts in kB

count, seed = int(sys.argv[1]), int(sys.argv[2])
IdRows(10).build(torch.arange(10))  # compiles
ids = torch.randint(-(2**63), 2**63 - 1, (count,), generator=torch.Generator().manual_seed(seed))
rows, before, start = IdRows(count, seed), peak(), time.perf_counter()
rows.build(ids)
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "before": before, "peak": peak(), "bytes_per_id": rows.num_bytes / count}))
"""


def measure(
    *, num_built: int = 10_000_000, num_ids: int = 1_000_000, num_found: int = 1_000_000, repetitions: int = 5
) -> list[Row]:
    return [*_building(num_built, repetitions), *_finding(num_ids, num_found, repetitions)]


def _building(count: int, repetitions: int) -> list[Row]:
    """Each repetition has other ids and another seed, and so other keys may fail first."""
    runs = [_built(count, seed) for seed in range(repetitions)]

    def all_of(name: str) -> Spread:
        return Spread.of(run[name] for run in runs)

    name = f"{count:,} ids get rows"
    above = Spread.of(run["peak"] - run["before"] for run in runs)
    return [
        at_most(f"{name}: time", all_of("seconds"), SECONDS_TARGET, " s"),
        at_most(f"{name}: peak memory of the process", all_of("peak"), MEGABYTES_TARGET, " MB"),
        figure(f"{name}: above the ids and the imports", above, " MB"),
        figure(f"{name}: size", all_of("bytes_per_id"), " bytes per id"),
    ]


def _built(count: int, seed: int) -> dict[str, float]:
    command = [sys.executable, "-c", BUILD, str(count), str(seed)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _finding(num_ids: int, num_found: int, repetitions: int) -> list[Row]:
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(-(2**63), 2**63 - 1, (num_ids,), generator=random)
    rows, table = IdRows(num_ids), nn.Embedding(num_ids, 32).requires_grad_(False)
    given = rows.build(ids)
    asked = torch.randint(num_ids, (num_found,), generator=random)
    results = []
    for batch_size in (100, 4096):

        def over(batches: Tensor, module: nn.Module, size: int = batch_size) -> None:
            for start in range(0, num_found, size):
                module(batches[start : start + size])

        with on_threads(1):
            seconds = time_alternately(
                {"find": partial(over, ids[asked], rows), "look up": partial(over, given[asked], table)},
                repetitions=repetitions,
            )
        name = f"rows of {num_ids:,} ids, batch {batch_size:,}"
        ratio = Spread.of_ratios(seconds["find"], seconds["look up"])
        results += [
            figure(name, Spread.of(value / num_found * 1e9 for value in seconds["find"]), " ns per id"),
            figure(f"{name}, against `nn.Embedding` by row", ratio, " ×"),
        ]
    return results


if __name__ == "__main__":
    show(measure())
