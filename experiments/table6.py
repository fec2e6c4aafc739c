"""Table 6 (RQ4): shapes of the embedding network at equal parameters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from tableless.recommender.lines import Line

from .claims import Claim
from .finished import NOT_RUN, Finished
from .running import Experiment, Settings, main
from .training_runs import MOVIELENS, perform, settings
from .writing import table

SEEDS = range(3)
DEFAULT = "equal-width"
PAPER = {"pyramid": 97.20, "inverted-pyramid": 97.50, "densenet": 97.53, "residual": 97.61, DEFAULT: 97.66}


def _runs(architecture: str) -> list[Settings]:
    # Five hidden layers and batch norm, as in the paper; hashes and recipe are ours.
    options = {"architecture": architecture, "depth": 5, "normalization": "batch"}
    return [settings(MOVIELENS, "dhe", "1/4", seed, options=options) for seed in SEEDS]


EXPERIMENT = Experiment("table6", list(chain.from_iterable(_runs(architecture) for architecture in PAPER)), perform)

CLAIMS = [
    Claim(f"equal widths are above {architecture}", _runs(DEFAULT), _runs(architecture), paper=PAPER[DEFAULT] - paper)
    for architecture, paper in PAPER.items()
    if architecture != DEFAULT
]


def section(lines: Sequence[Line]) -> str:
    """The table, beside the paper's, with each shape's difference from equal widths."""
    finished = Finished(lines)
    rows = [
        [
            architecture,
            finished.cell(_runs(architecture)),
            "" if architecture == DEFAULT else str(finished.difference(_runs(architecture), _runs(DEFAULT)) or NOT_RUN),
            f"{paper:.2f}",
        ]
        for architecture, paper in PAPER.items()
    ]
    return table(
        ["five hidden layers, BN, Mish", "ours: ML-1M, GMF, 1/4", "over equal-width", "paper: ML-20M, GMF"], rows
    )


if __name__ == "__main__":
    main(EXPERIMENT)
