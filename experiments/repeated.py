"""Do results stand? Rows drawn at random and run once more (`python -m experiments --repeat ROWS`).

A row is the runs of an experiment that differ by their seed alone. What comes out goes to `results/repeated.jsonl` and
into the report, whatever it is. Tables that DHE learns from are trained anew only where none are kept (a fresh clone).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tableless.recommender.lines import Line, read_lines

from . import running
from .finished import NOT_RUN, Finished
from .running import Experiment, Settings
from .writing import table

_NAME = "repeated"


def perform(settings: Settings) -> dict[str, Any]:
    """A run of an experiment, as that experiment does it."""
    from .__main__ import EXPERIMENTS  # which imports this

    return EXPERIMENTS[settings["experiment"]].perform(settings["run"])


def drawn(experiments: Iterable[Experiment], num_rows: int, draw: int) -> Experiment:
    """So many rows that have an AUC and a spread (two seeds or more); the same number of a draw gives the same rows."""
    rows = []
    for experiment in experiments:
        finished = Finished(experiment.lines())
        by_row: dict[str, list[Settings]] = {}
        for run in experiment.runs:
            if finished.values([run]):
                by_row.setdefault(_row(run), []).append({"experiment": experiment.name, "run": run})
        rows += [runs for runs in by_row.values() if len(runs) > 1]
    chosen = random.Random(draw).sample(rows, num_rows)
    return Experiment(_NAME, [run for runs in chosen for run in runs], perform)


def all_lines() -> list[Line]:
    """All that was ever repeated."""
    return read_lines(running.RESULTS / f"{_NAME}.jsonl")


def section(lines: Iterable[Line], experiments: Mapping[str, Experiment]) -> str:
    """Each repeated row with its mean and spread, at first and again, and how far a run was off at most."""
    by_row: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        by_row.setdefault((line["experiment"], _row(line["run"])), []).append(line)
    rows = []
    for (name, _), own in by_row.items():
        first = Finished(experiments[name].lines())
        runs = [line["run"] for line in own if first.line(line["run"])]  # others are not part of the report any more
        if not runs:
            continue
        again = Finished(line["run"] | {"results": line["results"]} for line in own)
        off = [abs(before - now) for before, now in zip(first.values(runs), again.values(runs), strict=True)]
        what = _what_varies(runs[0], experiments[name].runs)
        rows.append([name, what, first.cell(runs), again.cell(runs), f"{100 * max(off):.4f}"])
    if not rows:
        return NOT_RUN
    return table(["experiment", "row", "AUC at first, %", "again", "a run is off by, at most"], rows, num_texts=2)


def _row(run: Settings) -> str:
    return json.dumps(_without_seed(run), sort_keys=True)


def _what_varies(run: Settings, among: Sequence[Settings]) -> str:
    """The settings that tell a row from the others of its experiment."""
    others = [_without_seed(other) for other in among]
    return ", ".join(
        f"{name.rpartition('.')[2]} {value}"
        for name, value in _without_seed(run).items()
        if any(other.get(name) != value for other in others)
    )


def _without_seed(settings: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """Nested settings side by side (`a.b` is the b within a), but for the seed."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _without_seed(value, f"{within}{name}.")
        elif name != "seed":
            flat[within + name] = value
    return flat
