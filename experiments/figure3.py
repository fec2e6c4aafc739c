"""Figure 3 (RQ4): how deep the embedding network should be, at equal parameters."""

from __future__ import annotations

from collections.abc import Sequence

from tableless.files.whole import Line

from .claims import Claim
from .finished import NOT_RUN, SHOWN, Finished
from .running import Experiment, Settings, main
from .training_runs import MOVIELENS, RECIPES, Recipe, perform, settings
from .writing import markers, new_picture, paragraphs, save_picture, table

SEEDS = range(3)
DEPTHS = range(1, 7)  # hidden layers
DEPTHS_OF: dict[Recipe, Sequence[int]] = {"paper": [1, 3, 5, 6], "fast": DEPTHS}


def _runs(depth: int, recipe: Recipe) -> list[Settings]:
    return [settings(MOVIELENS, "dhe", "1/4", seed, recipe=recipe, options={"depth": depth}) for seed in SEEDS]


EXPERIMENT = Experiment(
    "figure3", [run for recipe in RECIPES for depth in DEPTHS_OF[recipe] for run in _runs(depth, recipe)], perform
)

CLAIMS = [
    Claim(f"five hidden layers are above {name}", _runs(5, recipe), _runs(depth, recipe))
    for recipe in RECIPES
    for name, depth in (("one", 1), ("three", 3))
]


def section(lines: Sequence[Line]) -> str:
    """The curves and their points. The paper shows a curve without numbers, and says what is to be seen in it."""
    finished = Finished(lines)
    rows = [
        [
            f"{name}: {label}",
            *(finished.cell(_runs(depth, recipe), metric) if depth in DEPTHS_OF[recipe] else "" for depth in DEPTHS),
        ]
        for recipe, name in RECIPES.items()
        for metric, label in SHOWN.items()
    ]
    return paragraphs(
        [
            "The paper (ML-20M) says: around five hidden layers are significantly better than wider and shallower "
            "networks, and more bring nothing. Ours: ML-1M, GMF, 1/4.",
            table(["hidden layers", *map(str, DEPTHS)], rows),
            finished.measured_on(EXPERIMENT.runs),
            _picture(finished),
        ]
    )


def _picture(finished: Finished) -> str:
    if not finished.values(EXPERIMENT.runs):
        return NOT_RUN
    figure = new_picture(width=11)
    for axes, (metric, label) in zip(figure.subplots(1, len(SHOWN)), SHOWN.items(), strict=True):
        for number, (recipe, name) in enumerate(RECIPES.items()):
            points = [(depth, _runs(depth, recipe)) for depth in DEPTHS_OF[recipe]]
            points = [(depth, runs) for depth, runs in points if finished.values(runs, metric)]
            markers(axes, finished, points, metric, color=f"C{number}", label=name)
        axes.set(xlabel="hidden layers, at equal parameters", ylabel=f"test {label}", xticks=list(DEPTHS))
        axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return save_picture(figure, "figure3", says="Accuracy by depth of the network")


if __name__ == "__main__":
    main(EXPERIMENT)
