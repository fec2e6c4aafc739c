"""The report: `REPORT.md` and its pictures, from the lines of finished runs alone. `python -m experiments.report`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from tableless.recommender.lines import Line

from . import (
    elsewhere,
    experts,
    features,
    figure2,
    figure3,
    new_ids,
    online,
    repeated,
    table1,
    table2,
    table3,
    table4,
    table5,
    table6,
    table7,
    table8,
    teacher,
)
from .claims import NOT_REPRODUCED, OPPOSITE, REPRODUCED, SIMILAR, UNCLEAR, UNDECIDED, VERDICTS, Claim
from .finished import Finished
from .recommendation import how_far_dhe_gets, recommendation
from .running import Experiment, seed_of
from .writing import table

PATH = Path(__file__).parent / "REPORT.md"

SECTIONS: dict[str, ModuleType] = {
    "Table 1: the schemes": table1,
    "Table 2 and appendix A: the encodings": table2,
    "Figure 2 (RQ1): accuracy against size": figure2,
    "Figure 2, elsewhere": elsewhere,
    "Table 3 (RQ2): encodings for DHE": table3,
    "Table 4 (RQ3): number of hashes": table4,
    "Table 5 (RQ4): batch norm and activation": table5,
    "Figure 3 (RQ4): depth": figure3,
    "Table 6 (RQ4): shapes of the network": table6,
    "Table 7 (RQ5): genres": table7,
    "Table 8 (RQ6): time": table8,
    "New ids": new_ids,
    "Learning online": online,
    "Experts": experts,
    "Teacher": teacher,
    "Joint features": features,
}

_OPENING = """\
# Deep hash embedding, reproduced

Written by `python -m experiments.report`: every result of ours comes from the lines in `results/`, and what they do
not have yet is “not run yet”. **The data differs**: the paper has MovieLens-20M and Amazon Books, which were not to be
had where this ran, so MovieLens-1M, Book-Crossing and Globo stand in for them; levels of AUC do not compare, orders and
differences may. AUC is in per cent, mean ± standard deviation over seeds. A difference is paired by seed, with its
95 % interval (Student's t), in points of AUC. “–”: infeasible within the budget. DHE is trained by the fast recipe (a
table first, the network fitted to it, then tuned), unless it says “end to end”, as the paper trains."""


def write() -> Path:
    """Write the report and its pictures; says where."""
    lines = {name: module.EXPERIMENT.lines() for name, module in SECTIONS.items()}
    part = PATH.with_suffix(".md.part")
    part.write_text(render(lines, repeated.all_lines()), encoding="utf-8")
    part.replace(PATH)
    return PATH


def render(lines: dict[str, list[Line]], again: Sequence[Line] = ()) -> str:
    """The text of the report, from the lines of each section and of runs that were done `again`."""
    figure2_lines = lines["Figure 2 (RQ1): accuracy against size"]
    parts = [
        _OPENING,
        "## Summary: what of the paper reproduced",
        _summary(lines),
        how_far_dhe_gets(Finished(figure2_lines)),
        "## Which scheme at which budget",
        recommendation(Finished(figure2_lines)),
        "## What was run",
        _what_was_run(lines),
        "## Rows drawn at random and run again",
        repeated.section(again, {module.EXPERIMENT.name: module.EXPERIMENT for module in SECTIONS.values()}),
    ]
    for title, module in SECTIONS.items():
        parts += [f"## {title}", module.section(lines[title]), _failures(module.EXPERIMENT, lines[title])]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(lines: dict[str, list[Line]]) -> str:
    """How many claims hold, which do not, and all of them with their figures."""
    rows, by_verdict = [], dict[str, list[str]]()
    for title, module in SECTIONS.items():
        finished = Finished(lines[title])
        claims: list[Claim] = getattr(module, "CLAIMS", [])
        for claim in claims:
            says, paper, ours, verdict = claim.row(finished)
            rows.append([title.partition(":")[0], says, paper, ours, verdict])
            by_verdict.setdefault(verdict, []).append(f"{says}, {ours}")
    counts = ", ".join(f"{verdict}: {len(by_verdict[verdict])}" for verdict in VERDICTS if verdict in by_verdict)
    note = (
        f"Of {len(rows)} claims of the paper: {counts}. “{REPRODUCED}” needs an interval on the right side of zero or, "
        f"for “as good as”, one that ends no lower than {-100 * SIMILAR:.1f} points, a limit of our choice. Intervals "
        "are not corrected for the number of claims: of twenty differences that are none, one will look clear. Two "
        "seeds make wide ones."
    )
    failed = [
        f"- {verdict}: {'; '.join(by_verdict[verdict])}"
        for verdict in (OPPOSITE, NOT_REPRODUCED, UNCLEAR, UNDECIDED)
        if verdict in by_verdict
    ]
    headings = ["where", "the paper says", "its difference", "ours, with 95 % interval", "verdict"]
    return "\n\n".join([note, "\n".join(failed), table(headings, rows, num_texts=2)])


def _what_was_run(lines: dict[str, list[Line]]) -> str:
    rows = []
    for title, module in SECTIONS.items():
        experiment: Experiment = module.EXPERIMENT
        done = f"{len(lines[title])} of {len(experiment.runs)}"
        link = f"[{title}](results/{experiment.path.name})" if experiment.path.exists() else title
        rows.append([link, done, f"{_hours(lines[title]):.2f}", f"{_hours(_first_seeds(lines[title])):.2f}"])
    everything = [line for own in lines.values() for line in own]
    hours, of_first = _hours(everything), _hours(_first_seeds(everything))
    return "\n\n".join(
        [
            f"Hours are of one core, as run; {hours:.1f} together, that is {hours / 2:.1f} hours on two cores. The "
            f"first seeds of everything took {of_first / 2:.1f} of them; `make experiments` does these first, and "
            "begins no run after six hours.",
            table(["", "runs finished", "hours", "of first seeds"], rows),
        ]
    )


def _hours(lines: Sequence[Line]) -> float:
    return sum(line.get("seconds", 0.0) for line in lines) / 3600


def _first_seeds(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if seed_of(line) == 0]


def _failures(experiment: Experiment, lines: list[Line]) -> str:
    """Runs that could not be done, with the reason: none is dropped silently."""
    reasons = Counter(str(line["error"]) for line in lines if "error" in line)
    return "\n".join(f"- {count} × infeasible: {reason}" for reason, count in reasons.items())


if __name__ == "__main__":
    print(write())
