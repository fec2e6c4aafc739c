"""Table 8 (RQ6): seconds for a million look-ups in batches of 100, on a core."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tableless.files.whole import Line
from tableless.serving.timing import PAPER_BUDGET, measure_lookups

from .finished import NOT_RUN
from .running import Experiment, Settings, main
from .writing import table

REPETITIONS = range(5)
QUERIES = 200_000  # each time: a million together
PAPER = {"full": "3.4 / 3.4", "hash-embedding": "8.4 / 6.1", "dhe as published": "76.1 / 27.2"}


def perform(settings: Settings) -> dict[str, Any]:
    """Time all ways of looking up in turn."""
    report = measure_lookups(
        budget=PAPER_BUDGET, queries=settings["queries"], batch_size=settings["batch_size"], repetitions=5
    )
    return {"machine": report.machine, "times": {time.name: asdict(time) for time in report.times}}


EXPERIMENT = Experiment(
    "table8",
    [{"queries": QUERIES, "batch_size": 100, "repetition": repetition} for repetition in REPETITIONS],
    perform,
)


def section(lines: Sequence[Line]) -> str:
    """Medians and ranges over the repetitions."""
    if not lines:
        return NOT_RUN
    names = list(lines[0]["results"]["times"])
    rows = []
    for name in names:
        times = [line["results"]["times"][name] for line in lines if name in line["results"]["times"]]
        seconds = [time["seconds_per_million"]["median"] for time in times]
        ratio = statistics.median(time["of_full"]["median"] for time in times)
        rows.append(
            [
                name,
                f"{times[0]['num_parameters']:,}",
                f"{statistics.median(seconds):.2f} ({min(seconds):.2f}–{max(seconds):.2f})",
                f"{ratio:.1f}",
                PAPER.get(name, ""),
            ]
        )
    headings = ["look-ups", "parameters", "s per million (range)", "× full", "paper: CPU / V100, s"]
    machine = lines[0]["results"]["machine"]
    return "\n\n".join(
        [
            f"{machine}. One core; ratios say more than seconds. The paper's DHE is 22 times "
            "slower than its full table on a CPU, 8 times on a GPU; ours ran on no GPU. `dhe as published` is the "
            "module as trained; the rows below it are ways of serving it.",
            table(headings, rows),
        ]
    )


if __name__ == "__main__":
    main(EXPERIMENT)
