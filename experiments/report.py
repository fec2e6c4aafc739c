"""The report: `REPORT.md` and its pictures, from the lines of finished runs alone. `python -m experiments.report`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from tableless.files.whole import Line

from . import (
    choices,
    clicks,
    cold_start,
    deepfm,
    elsewhere,
    experts,
    few_bits,
    figure2,
    figure3,
    figures,
    frontier,
    losses,
    new_ids,
    online,
    online_tuning,
    repeated,
    replacing,
    sentences,
    students,
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
from .claims import (
    AS_PUBLISHED,
    DOES_NOT_AGREE,
    NOT_REPRODUCED,
    OPPOSITE,
    OURS,
    OUTCOMES,
    REPRODUCED,
    SIMILAR,
    UNCLEAR,
    UNDECIDED,
    VERDICTS,
    Claim,
)
from .finished import CAPPED_MARK, NOT_RUN, Finished
from .recommendation import how_far_dhe_gets, recommendation
from .running import Experiment, seed_of
from .writing import paragraphs, table

PATH = Path(__file__).parent / "REPORT.md"

SECTIONS: dict[str, ModuleType] = {
    "Table 1: the schemes": table1,
    "Table 2 and appendix A: the encodings": table2,
    "Figure 2 (RQ1): accuracy against size": figure2,
    "Figure 2, elsewhere": elsewhere,
    "The frontier: accuracy against bytes": frontier,
    "Losses: the table to learn from": losses,
    "Students: what a network keeps of its table": students,
    "Table 3 (RQ2): encodings for DHE": table3,
    "Table 4 (RQ3): number of hashes": table4,
    "Table 5 (RQ4): batch norm and activation": table5,
    "Figure 3 (RQ4): depth": figure3,
    "Table 6 (RQ4): shapes of the network": table6,
    "Table 7 (RQ5): genres": table7,
    "Table 8 (RQ6): time": table8,
    "New ids": new_ids,
    "Cold start: features": cold_start,
    "Learning online": online,
    "Settings of streams": online_tuning,
    "Experts": experts,
    "Teacher": teacher,
    "Replacing tables: which scheme": replacing,
    "Click models: several columns": clicks,
    "Replacing the tables of a DeepFM": deepfm,
    "Replacing the table of a sentence model": sentences,
    "Weights in few bits": few_bits,
    "Choices: constants of the library": choices,
}

_OPENING = f"""\
# Deep hash embedding, reproduced

Written by `python -m experiments.report`: every result of ours comes from the lines in `results/`. An experiment
without lines has no section here, and stands in the [list of what was run](#what-was-run-and-what-was-not). **The data
differs**: the paper has MovieLens-20M and Amazon Books, which were not to be had where this ran, so MovieLens-1M,
Book-Crossing and Globo stand in for them; levels of AUC do not compare, orders and differences may. Accuracies are in
per cent, mean ± standard deviation over seeds. A difference is paired by seed, with its 95 % interval (Student's t), in
points. Sizes such as 1/4 are shares of the full table's parameters, as in the paper. “–”: infeasible within the budget.
“{CAPPED_MARK}”, and a hollow marker in a picture: at least one of the runs stopped at its limit of epochs when it might
still have risen; no verdict is drawn from it.

There are two recipes, and a comparison is made within one of them. **As published**: every model is trained end to end
with Adam, and DHE has the network of the paper (1024 hashes, five layers, batch norm, Mish). **Ours, the fast recipe**:
a full table with weight decay is trained first, every scheme is fitted to it and then tuned; `full` is that table
itself. One rule for stopping holds for everything."""


def write() -> Path:
    """Write the report, its pictures and the figures of the documentation; says where the report is."""
    lines = {name: module.EXPERIMENT.lines() for name, module in SECTIONS.items()}
    part = PATH.with_suffix(".md.part")
    part.write_text(render(lines, repeated.all_lines()), encoding="utf-8")
    part.replace(PATH)
    figures.write()
    return PATH


def render(lines: dict[str, list[Line]], again: Sequence[Line] = ()) -> str:
    """The text of the report, from the lines of each section and of runs that were done `again`."""
    figure2_lines = lines["Figure 2 (RQ1): accuracy against size"]
    parts = [
        _OPENING,
        "## Summary: the claims of the paper, tested by the method of the paper",
        _summary(lines, AS_PUBLISHED),
        "## The same comparisons by our recipe",
        _summary(lines, OURS),
    ]
    if figure2_lines:
        parts += ["## How far DHE gets", how_far_dhe_gets(Finished(figure2_lines))]
        parts += ["## Which scheme at which budget, by the fast recipe", recommendation(Finished(figure2_lines))]
    parts += [
        "## What was run, and what was not",
        _what_was_run(lines),
        "## Rows drawn from all by a committed seed, and run again",
        repeated.section(again, {module.EXPERIMENT.name: module.EXPERIMENT for module in SECTIONS.values()}),
    ]
    for title, module in SECTIONS.items():
        if own := lines[title]:
            parts += [f"## {title}", module.section(own), _failures(own)]
    return paragraphs(parts) + "\n"


_METHOD_IN_WORDS = {
    AS_PUBLISHED: "as published (end to end, the network of the paper)",
    OURS: "by our method (the fast recipe, our network)",
}
_NOTES = {
    AS_PUBLISHED: f"“{REPRODUCED}” needs an interval on the right side of zero or, for “as good as”, one that ends no "
    f"lower than {-100 * SIMILAR:.1f} points, a limit of our choice. Intervals are not corrected for the number of "
    "claims: of twenty differences that are none, one will look clear. Two seeds make wide ones.",
    OURS: "These are no verdicts on the paper: its method is another one. They say what holds for models that are "
    "trained as the library trains them.",
}


def _summary(lines: dict[str, list[Line]], method: str) -> str:
    """How many claims hold when tested by one method, which do not, and those that were tested with their figures."""
    rows, by_verdict = [], dict[str, list[str]]()
    for title, module in SECTIONS.items():
        finished = Finished(lines[title])
        claims: list[Claim] = getattr(module, "CLAIMS", [])
        for claim in claims:
            if claim.method == method:
                row = claim.row(finished)
                by_verdict.setdefault(row[-1], []).append(f"{claim.says} ({claim.where}), {row[3]}")
                if row[-1] != NOT_RUN:
                    rows.append([title.partition(":")[0], *row])
    total = sum(map(len, by_verdict.values()))
    order = VERDICTS if method == AS_PUBLISHED else OUTCOMES
    counts = ", ".join(f"{verdict}: {len(by_verdict[verdict])}" for verdict in order if verdict in by_verdict)
    failed = [
        f"- {verdict}: {'; '.join(by_verdict[verdict])}"
        for verdict in (OPPOSITE, NOT_REPRODUCED, DOES_NOT_AGREE, UNCLEAR, UNDECIDED)
        if verdict in by_verdict
    ]
    headings = ["where", "the paper says", "tested on", "its difference", "ours: AUC", "ours: NDCG@10"]
    headings.append("verdict on the paper" if method == AS_PUBLISHED else "by our recipe")
    note = f"Of {total} comparisons, all {_METHOD_IN_WORDS[method]}: {counts}. {_NOTES[method]}"
    return paragraphs([note, "\n".join(failed), table(headings, rows, num_texts=3) if rows else ""])


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
            f"Hours are of one core, as run; {hours:.1f} together, those of first seeds {of_first:.1f}. "
            "`make experiments` does first seeds first, and begins no run after six hours.",
            table(["", "runs finished", "hours", "of first seeds"], rows),
        ]
    )


def _hours(lines: Sequence[Line]) -> float:
    return sum(line.get("seconds", 0.0) for line in lines) / 3600


def _first_seeds(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if seed_of(line) == 0]


def _failures(lines: list[Line]) -> str:
    """Runs that could not be done, with the reason: none is dropped silently."""
    reasons = Counter(str(line["error"]) for line in lines if "error" in line)
    return "\n".join(f"- {count} × infeasible: {reason}" for reason, count in reasons.items())


if __name__ == "__main__":
    print(write())
