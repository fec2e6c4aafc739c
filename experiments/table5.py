"""Table 5 (RQ4): batch normalization and activation, as published and by the fast recipe."""

from __future__ import annotations

from collections.abc import Sequence

from tableless.files.whole import Line

from .claims import Claim
from .finished import Finished
from .running import Experiment, Settings, main
from .training_runs import MOVIELENS, RECIPES, Recipe, perform, settings
from .writing import metrics_by_recipe, paragraphs, table

SEEDS = range(3)
NORMALIZATIONS = {"none": "without batch norm", "batch": "with batch norm"}
PAPER = {("none", "relu"): 97.33, ("none", "mish"): 97.43, ("batch", "relu"): 97.54, ("batch", "mish"): 97.66}
# The paper only mentions these; by the fast recipe they are tried in the network that we take, without batch norm.
MENTIONED = [("none", "tanh"), ("none", "sine")]


def _runs(normalization: str, activation: str, recipe: Recipe) -> list[Settings]:
    options = {"normalization": normalization, "activation": activation}
    return [settings(MOVIELENS, "dhe", "1/4", seed, recipe=recipe, options=options) for seed in SEEDS]


EXPERIMENT = Experiment(
    "table5",
    [
        *(run for recipe in RECIPES for each in PAPER for run in _runs(*each, recipe)),
        *(run for each in MENTIONED for run in _runs(*each, "fast")),
    ],
    perform,
)

CLAIMS = [
    claim
    for recipe in RECIPES
    for best in [_runs("batch", "mish", recipe)]
    for claim in (
        Claim("batch norm helps", best, _runs("none", "mish", recipe), paper=97.66 - 97.43),
        Claim("Mish is above ReLU", best, _runs("batch", "relu", recipe), paper=97.66 - 97.54),
    )
]


def section(lines: Sequence[Line]) -> str:
    """The table, in both ways of training, beside the paper's."""
    finished = Finished(lines)
    rows = []
    for each in [*PAPER, *MENTIONED]:
        published = finished.cells(_runs(*each, "paper")) if each in PAPER else ["", ""]
        paper = f"{PAPER[each]:.2f}" if each in PAPER else ""
        name = f"{each[1]}, {NORMALIZATIONS[each[0]]}"
        rows.append([name, *published, *finished.cells(_runs(*each, "fast")), paper])
    headings = ["ML-1M, GMF, 1/4", *metrics_by_recipe(), "paper: ML-20M, GMF, AUC"]
    return paragraphs([table(headings, rows), finished.measured_on(EXPERIMENT.runs)])


if __name__ == "__main__":
    main(EXPERIMENT)
