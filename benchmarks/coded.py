"""How long do look-ups of coded rows take, beside those in a table? How long does coding take, in how much memory?

Look-ups take one core. Their codes are random, which takes the same time: a code stands for a vector whatever it is.
Rows are coded by a process of its own, on all cores. Imports and compilers need more memory for a moment than they
keep, so Linux is asked to forget the peak before the work begins. `--build 1000000` codes so many rows, and looks
nothing up.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.measuring import Row, Spread, at_most, figure, not_measured, on_threads, show, time_alternately
from tableless.embedding.tables import CodedEmbedding

DIM, BUDGET = 32, "9B/id"
TARGET = 4  # times `nn.Embedding`
MANY, SECONDS_TARGET, MEGABYTES_TARGET = 10_000_000, 60, 1_000

# Row i of the table is the numbers i to i + 31 of one long list. So the table takes next to no memory, and what is
# measured is that of coding.
BUILD = """
import json, sys, time
import torch
from tableless.embedding.tables import CodedEmbedding

def megabytes(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1000  # Linux counts in kB

def fit(count, seed):
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(-(2**63), 2**63 - 1, (count,), generator=random)
    rows = torch.randn(count + 32, generator=random).as_strided((count, 32), (1, 1))
    scheme, start = CodedEmbedding(32, vocab_size=count, num_bits=64, seed=seed), time.perf_counter()
    scheme.fit_directly(ids, rows, metric=torch.eye(32), weights=torch.ones(count))
    return time.perf_counter() - start, scheme.num_bytes / count

torch.set_num_threads(int(sys.argv[2]))
fit(1000, 0)  # compiles
open("/proc/self/clear_refs", "w").write("5")  # the peak is from now on
before = megabytes("VmRSS")
seconds, bytes_per_id = fit(int(sys.argv[1]), 1)
print(json.dumps({"seconds": seconds, "before": before, "peak": megabytes("VmHWM"), "bytes_per_id": bytes_per_id}))
"""


def measure(
    *, num_ids: int = 1_000_000, num_found: int = 1_000_000, num_coded: int = MANY, repetitions: int = 5
) -> list[Row]:
    return [*_looking_up(num_ids, num_found, repetitions), *_coding(num_coded, threads=os.cpu_count() or 1)]


def _looking_up(num_ids: int, num_found: int, repetitions: int) -> list[Row]:
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(-(2**63), 2**63 - 1, (num_ids,), generator=random)
    kinds = {
        "coded": CodedEmbedding.from_budget(BUDGET, embedding_dim=DIM, vocab_size=num_ids, rotated=False),
        "coded and turned": CodedEmbedding.from_budget(BUDGET, embedding_dim=DIM, vocab_size=num_ids, rotated=True),
        "coded, 8 check bits": CodedEmbedding.from_budget(
            BUDGET, embedding_dim=DIM, vocab_size=num_ids, rotated=False, check_bits=8
        ),
    }
    given = ids
    for scheme in kinds.values():
        given = scheme.finder.build(ids)  # the rows of the last one are those of the table
    finder, table = scheme.finder, nn.Embedding(num_ids, DIM).requires_grad_(False)
    asked = torch.randint(num_ids, (num_found,), generator=random)
    results = []
    for batch_size in (100, 4096):
        tasks = {
            name: partial(_over, scheme.served("fp32", ids[:1000]).vectors, ids[asked], batch_size)
            for name, scheme in kinds.items()
        }
        tasks["table"] = partial(_over, table, given[asked], batch_size)
        tasks["table by id"] = partial(_over, lambda own: table(finder(own)), ids[asked], batch_size)
        with on_threads(1), torch.inference_mode():
            seconds = time_alternately(tasks, repetitions=repetitions)
        for name in kinds:
            title = f"{name}: {num_ids:,} ids in {BUDGET}, batch {batch_size:,}"
            by_row = Spread.of_ratios(seconds[name], seconds["table"])
            by_id = Spread.of_ratios(seconds[name], seconds["table by id"])
            results += [
                figure(title, Spread.of(value / num_found * 1e9 for value in seconds[name]), " ns per id"),
                at_most(f"{title}, against `nn.Embedding` by row number", by_row, TARGET, " ×"),
                figure(f"{title}, against `nn.Embedding` by raw id (`IdRows`)", by_id, " ×"),
            ]
    return results


def _over(vectors: Callable[[Tensor], Tensor], ids: Tensor, size: int) -> None:
    for start in range(0, len(ids), size):
        vectors(ids[start : start + size])


def _coding(count: int, *, threads: int) -> list[Row]:
    """One run: it takes minutes where there are many rows."""
    name = f"{count:,} rows become 64 bits each" + (f", {threads} threads" if threads > 1 else "")
    if sys.platform != "linux":
        return [not_measured(name, "the peak of memory is read as Linux tells it", "")]
    command = [sys.executable, "-c", BUILD, str(count), str(threads)]
    run = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    spread = {key: Spread.of([value]) for key, value in run.items()}
    above = Spread.of([run["peak"] - run["before"]])
    if count >= MANY:
        rows = [
            at_most(f"{name}: time", spread["seconds"], SECONDS_TARGET, " s"),
            at_most(f"{name}: peak memory of the process", spread["peak"], MEGABYTES_TARGET, " MB"),
        ]
    else:
        rows = [figure(f"{name}: time", Spread.of([run["seconds"] / count * 1e6]), " µs per row")]
    return [
        *rows,
        figure(f"{name}: memory above the imports", above, " MB"),
        figure(f"{name}: size", spread["bytes_per_id"], " bytes per id"),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=int, metavar="ROWS", help="code so many rows, and look nothing up")
    given = parser.parse_args().build
    show(measure() if given is None else _coding(given, threads=os.cpu_count() or 1))
