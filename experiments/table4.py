"""Table 4 (RQ3): how many hash functions DHE and its rivals can use. The paper's is of MLP, and so is ours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tableless.files.whole import Line

from .claims import Claim
from .finished import SHOWN, Finished
from .running import Experiment, Settings, main
from .training_runs import MOVIELENS, RECIPES, Recipe, perform, settings
from .writing import paragraphs, table

SEEDS = range(3)
NUM_HASHES = [2, 8, 32, 128, 1024, 2048]
# Hash embedding has k weights per id: at a quarter of the size they leave nothing for its table from k = 8 on.
NUM_HASHES_OF: dict[tuple[str, Recipe], list[int]] = {
    ("dhe", "paper"): NUM_HASHES,
    ("bloom", "paper"): [2, 8, 32, 128, 2048],
    ("hybrid", "paper"): [2, 128],
    ("hash-embedding", "paper"): [2, 8],
    ("dhe", "fast"): [8, 32, 128, 1024],
}
# The AUC of MLP on MovieLens-20M.
PAPER: dict[str, dict[int, float]] = {
    "dhe": {2: 92.74, 8: 96.77, 32: 97.44, 128: 97.58, 1024: 97.67, 2048: 97.65},
    "bloom": {2: 97.21, 8: 97.35, 32: 97.43, 128: 97.43, 1024: 97.39, 2048: 97.28},
    "hybrid": {2: 97.20, 8: 97.36, 32: 97.42, 128: 97.42, 1024: 97.41, 2048: 97.30},
    "hash-embedding": {2: 97.29},
}


def _runs(scheme: str, num_hashes: int, recipe: Recipe) -> list[Settings]:
    options = {"num_hashes": num_hashes}
    return [settings(MOVIELENS, scheme, "1/4", seed, recipe=recipe, backbone="mlp", options=options) for seed in SEEDS]


EXPERIMENT = Experiment(
    "table4",
    [
        run
        for (scheme, recipe), numbers in NUM_HASHES_OF.items()
        for number in numbers
        for run in _runs(scheme, number, recipe)
    ],
    perform,
)


def _claim(says: str, above: tuple[str, int], below: tuple[str, int], recipe: Recipe) -> Claim:
    """One of two (scheme, number of hashes) is above the other, by what the paper's table has."""
    difference = PAPER[above[0]][above[1]] - PAPER[below[0]][below[1]]
    return Claim(says, _runs(*above, recipe), _runs(*below, recipe), paper=difference, paper_backbone="mlp")


CLAIMS = [
    *(
        _claim(f"DHE gains from {fewer} to {more} hashes", ("dhe", more), ("dhe", fewer), recipe)
        for recipe in RECIPES
        for fewer, more in pairwise([8, 32, 128, 1024])
    ),
    _claim("with 8 hashes, bloom is above DHE", ("bloom", 8), ("dhe", 8), "paper"),
    _claim("bloom gains from 2 to 8 hashes", ("bloom", 8), ("bloom", 2), "paper"),
    _claim("bloom gains from 8 to 32 hashes", ("bloom", 32), ("bloom", 8), "paper"),
    _claim("bloom loses from 128 to 2048 hashes", ("bloom", 128), ("bloom", 2048), "paper"),
    _claim("with 128 hashes, DHE is above bloom", ("dhe", 128), ("bloom", 128), "paper"),
    _claim("with 128 hashes, DHE is above hybrid", ("dhe", 128), ("hybrid", 128), "paper"),
]


def section(lines: Sequence[Line]) -> str:
    """A row of ours for each scheme, recipe and metric, and one of the paper's."""
    finished = Finished(lines)
    rows = []
    for (scheme, recipe), own in NUM_HASHES_OF.items():
        method = "as published" if recipe == "paper" else "fast recipe"
        for metric, label in SHOWN.items():
            cells = [
                finished.cell(_runs(scheme, number, recipe), metric) if number in own else "" for number in NUM_HASHES
            ]
            rows.append([f"{scheme}, {method}: {label}", *cells])
        if recipe == "paper":
            numbers = [f"{PAPER[scheme][number]:.2f}" if number in PAPER[scheme] else "" for number in NUM_HASHES]
            rows.append([f"{scheme}, the paper's AUC", *numbers])
    return paragraphs(
        [
            "Ours: ML-1M, MLP, 1/4; the paper's: ML-20M, MLP, 1/4. “–”: infeasible within the budget, which is what "
            "the paper found for hash embedding from k = 8 on.",
            table(["by number of hashes", *map(str, NUM_HASHES)], rows),
            finished.measured_on(EXPERIMENT.runs),
        ]
    )


if __name__ == "__main__":
    main(EXPERIMENT)
