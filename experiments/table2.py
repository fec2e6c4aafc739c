"""Table 2 and appendix A: the four properties of encodings, measured on codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tableless.embedding.diagnostics import measure_encodings
from tableless.files.whole import Line

from .finished import NOT_RUN, Finished
from .running import Experiment, Settings, main
from .writing import table

# Name, and the paper's verdicts: unique, equally similar, high-dimensional, high entropy.
PAPER = {
    "one-hot": "✓✓✓✗",
    "one-hot hash": "✗✓✓✗",
    "double one-hot hash": "✗✓✓✗",
    "binary": "✓✗✗✓",
    "identity": "✓✗✗✓",
    "dense hash": "✓✓✓✓",
}
VERDICTS = ["unique", "equally_similar", "high_dimensional", "high_entropy"]


def perform(settings: Settings) -> dict[str, Any]:
    """All encodings at once, by name."""
    return {report.name: report.as_dict() for report in measure_encodings(**settings)}


EXPERIMENT = Experiment("table2", [{"num_ids": 100_000, "num_hashes": 1024, "seed": 0}], perform)


def section(lines: Sequence[Line]) -> str:
    """Verdict and figure for each property; the paper's verdicts at the end of the row."""
    line = Finished(lines).line(EXPERIMENT.runs[0])
    reports = line["results"] if line else {}
    headings = ["encoding", "ids that share a code", "spread of distances", "length", "entropy, of the highest"]
    rows = [[name, *_cells(reports.get(name)), paper] for name, paper in PAPER.items()]
    agree = sum(_verdicts(reports[name]) == paper for name, paper in PAPER.items() if name in reports)
    return "\n\n".join(
        [
            "Codes of 100,000 ids; the dense hash has 1024 hashes. The paper derives its verdicts (unique, equally "
            "similar, high-dimensional, high entropy); ours follow from the figures by the limits in "
            "`embedding/diagnostics.py`.",
            table([*headings, "ours", "paper"], rows),
            f"{agree} of {len(PAPER)} rows agree with the paper." if reports else NOT_RUN,
        ]
    )


def _cells(report: dict[str, Any] | None) -> list[str]:
    if report is None:
        return [NOT_RUN, "", "", "", ""]
    return [
        f"{report['colliding_ids']:.1%}",
        f"{report['distance_spread']:.1%}",
        f"{report['code_dim']:,}",
        f"{report['mean_entropy']:.1%}",
        _verdicts(report),
    ]


def _verdicts(report: dict[str, Any]) -> str:
    return "".join("✓" if report[verdict] else "✗" for verdict in VERDICTS)


if __name__ == "__main__":
    main(EXPERIMENT)
