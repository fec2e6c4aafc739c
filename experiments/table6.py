"""Table 6 (RQ4): shapes of the embedding network at equal parameters."""

from __future__ import annotations

from collections.abc import Sequence

from tableless.files.whole import Line

from .claims import Claim
from .finished import NOT_RUN, Finished
from .running import Experiment, Settings, main
from .training_runs import MOVIELENS, RECIPES, Recipe, perform, settings
from .writing import metrics_by_recipe, paragraphs, table

SEEDS = range(3)
DEFAULT = "equal-width"
PAPER = {"pyramid": 97.20, "inverted-pyramid": 97.50, "densenet": 97.53, "residual": 97.61, DEFAULT: 97.66}


def _runs(architecture: str, recipe: Recipe) -> list[Settings]:
    options = {"architecture": architecture}
    return [settings(MOVIELENS, "dhe", "1/4", seed, recipe=recipe, options=options) for seed in SEEDS]


EXPERIMENT = Experiment(
    "table6", [run for recipe in RECIPES for architecture in PAPER for run in _runs(architecture, recipe)], perform
)

CLAIMS = [
    Claim(
        f"equal widths are above {architecture}",
        _runs(DEFAULT, recipe),
        _runs(architecture, recipe),
        paper=PAPER[DEFAULT] - paper,
    )
    for recipe in RECIPES
    for architecture, paper in PAPER.items()
    if architecture != DEFAULT
]


def section(lines: Sequence[Line]) -> str:
    """The table, beside the paper's, with each shape's difference from equal widths."""
    finished = Finished(lines)
    rows = []
    for architecture, paper in PAPER.items():
        cells = []
        for recipe in RECIPES:
            difference = finished.difference(_runs(architecture, recipe), _runs(DEFAULT, recipe))
            cells += finished.cells(_runs(architecture, recipe))
            cells.append("" if architecture == DEFAULT else str(difference or NOT_RUN))
        rows.append([architecture, *cells, f"{paper:.2f}"])
    headings = ["ML-1M, GMF, 1/4", *metrics_by_recipe("AUC over equal-width"), "paper: ML-20M, GMF, AUC"]
    return paragraphs([table(headings, rows), finished.measured_on(EXPERIMENT.runs)])


if __name__ == "__main__":
    main(EXPERIMENT)
