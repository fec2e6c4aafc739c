"""Do results stand? Rows drawn at random and run once more (`python -m experiments --repeat ROWS`).

A row is the runs of an experiment that differ by their seed alone. Rows are drawn from all finished rows of all
experiments that have an AUC, by a committed seed; the second is drawn from those by the fast recipe, so that at least
one of them is. What comes out goes to `results/repeated.jsonl` and into the report, whatever it is, with the draw and
how many rows there were. Tables that a model learns from are trained anew only where none are kept (a fresh clone).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tableless.files.whole import Line, read_lines

from . import running
from .finished import NOT_RUN, Finished
from .running import Experiment, Settings
from .writing import table

DRAW = 20
"""The seed of the draw. It is committed, so nobody can look for one that draws easy rows."""

ALL, BY_THE_FAST_RECIPE = "all rows", "rows by the fast recipe"
_NAME = "repeated"


def perform(settings: Settings) -> dict[str, Any]:
    """A run of an experiment, as that experiment does it."""
    from .__main__ import EXPERIMENTS  # which imports this

    return EXPERIMENTS[settings["experiment"]].perform(settings["run"])


def drawn(experiments: Iterable[Experiment], num_rows: int, draw: int = DRAW) -> Experiment:
    """So many rows: the first of all, the second of those by the fast recipe, further ones of all again."""
    left = _finished_rows(experiments)
    random_numbers = random.Random(draw)
    runs: list[Settings] = []
    for number in range(num_rows):
        among = BY_THE_FAST_RECIPE if number == 1 else ALL
        population = [row for row in left if among == ALL or _is_fast(row[0]["run"])]
        if not population:
            raise ValueError(f"there is nothing left to draw among {among}: {number} of {num_rows} rows were drawn")
        row = random_numbers.choice(population)
        left = [each for each in left if each is not row]
        record = {"seed": draw, "number": number, "among": among, "population": len(population)}
        runs += [{**run, "draw": record} for run in row]
    return Experiment(_NAME, runs, perform)


def _finished_rows(experiments: Iterable[Experiment]) -> list[list[Settings]]:
    rows: list[list[Settings]] = []
    for experiment in experiments:
        finished = Finished(experiment.lines())
        by_row: dict[str, list[Settings]] = {}
        for run in experiment.runs:
            if finished.values([run]):
                by_row.setdefault(_row(run), []).append({"experiment": experiment.name, "run": run})
        rows += by_row.values()
    return rows


def _is_fast(run: Settings) -> bool:
    return bool(run.get("train", run).get("recipe") == "fast")


def all_lines() -> list[Line]:
    """All that was ever repeated."""
    return read_lines(running.RESULTS / f"{_NAME}.jsonl")


def section(lines: Iterable[Line], experiments: Mapping[str, Experiment]) -> str:
    """Each repeated row with its draw, its mean and spread, at first and again, and how far a run was off at most."""
    by_row: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines:
        draw = line["draw"]
        how = f"{draw['seed']}: 1 of {draw['population']} ({draw['among']})"
        by_row.setdefault((line["experiment"], _row(line["run"]), how), []).append(line)
    rows = []
    for (name, _, how), own in by_row.items():
        first = Finished(experiments[name].lines())
        runs = [line["run"] for line in own if first.line(line["run"])]  # others are not part of the report any more
        if not runs:
            continue
        again = Finished(line["run"] | {"results": line["results"]} for line in own)
        off = [abs(before - now) for before, now in zip(first.values(runs), again.values(runs), strict=True)]
        what = _what_varies(runs[0], experiments[name].runs)
        rows.append([name, what, how, first.cell(runs), again.cell(runs), f"{100 * max(off):.4f}"])
    if not rows:
        return NOT_RUN
    headings = ["experiment", "row", "drawn by seed", "AUC at first, %", "again", "a run is off by, at most"]
    return table(headings, rows, num_texts=3)


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
