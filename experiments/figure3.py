"""Figure 3 (RQ4): how deep the embedding network should be, at equal parameters."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import chain

from tableless.recommender.lines import Line

from .claims import Claim
from .finished import NOT_RUN, Finished
from .running import Experiment, Settings, main
from .training_runs import MOVIELENS, perform, settings
from .writing import new_picture, save_picture, table

SEEDS = range(3)
DEPTHS = range(1, 7)  # hidden layers


def _runs(depth: int) -> list[Settings]:
    return [settings(MOVIELENS, "dhe", "1/4", seed, options={"depth": depth}) for seed in SEEDS]


EXPERIMENT = Experiment("figure3", list(chain.from_iterable(_runs(depth) for depth in DEPTHS)), perform)

CLAIMS = [
    Claim("five hidden layers are above one", _runs(5), _runs(1)),
    Claim("five hidden layers are above three", _runs(5), _runs(3)),
]


def section(lines: Sequence[Line]) -> str:
    """The curve and its points. The paper shows a curve without numbers, and says what is to be seen in it."""
    finished = Finished(lines)
    return "\n\n".join(
        [
            "The paper (ML-20M) says: around five hidden layers are significantly better than wider and shallower "
            "networks, and more bring nothing.",
            table(
                ["hidden layers", *map(str, DEPTHS)],
                [["ours: ML-1M, GMF, 1/4", *(finished.cell(_runs(depth)) for depth in DEPTHS)]],
            ),
            _picture(finished),
        ]
    )


def _picture(finished: Finished) -> str:
    values = {depth: finished.values(_runs(depth)) for depth in DEPTHS}
    values = {depth: own for depth, own in values.items() if own}
    if not values:
        return NOT_RUN
    figure = new_picture()
    axes = figure.subplots()
    axes.plot(list(values), [statistics.mean(own) for own in values.values()], marker="o")
    for depth, own in values.items():
        axes.scatter([depth] * len(own), own, color="grey", s=12)
    axes.set(xlabel="hidden layers, at equal parameters", ylabel="test AUC", xticks=list(DEPTHS))
    axes.spines[["top", "right"]].set_visible(False)
    return save_picture(figure, "figure3", says="AUC by depth of the network")


if __name__ == "__main__":
    main(EXPERIMENT)
