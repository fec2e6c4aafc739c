"""Table 5 (RQ4): batch normalization and activation, by the fast recipe and, as in the paper, end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from tableless.recommender.lines import Line

from .claims import Claim
from .finished import Finished
from .running import Experiment, Settings, main
from .training_runs import MOVIELENS, SMALL_BATCHES, perform, settings
from .writing import table

SEEDS = range(3)
ACTIVATIONS = ["relu", "mish", "tanh", "sine"]
NORMALIZATIONS = {"none": "without batch norm", "batch": "with batch norm"}
# A few epochs, and an eighth of the paper's hashes: enough to see who learns faster, which is what the paper is about.
END_TO_END = replace(SMALL_BATCHES, recipe="paper", epochs=6)
END_TO_END_HASHES = 128
PAPER = {("none", "relu"): 97.33, ("none", "mish"): 97.43, ("batch", "relu"): 97.54, ("batch", "mish"): 97.66}


def _fast(normalization: str, activation: str) -> list[Settings]:
    options = {"normalization": normalization, "activation": activation}
    seeds = SEEDS if (normalization, activation) in PAPER else SEEDS[:2]  # fewer for what the paper only mentions
    return [settings(MOVIELENS, "dhe", "1/4", seed, options=options) for seed in seeds]


def _end_to_end(normalization: str, activation: str) -> list[Settings]:
    options = {"normalization": normalization, "activation": activation, "num_hashes": END_TO_END_HASHES}
    return [settings(MOVIELENS, "dhe", "1/4", seed, options=options, training=END_TO_END) for seed in SEEDS]


_COMBINATIONS = [(normalization, activation) for normalization in NORMALIZATIONS for activation in ACTIVATIONS]
EXPERIMENT = Experiment(
    "table5",
    list(chain.from_iterable([_fast(*each) for each in _COMBINATIONS] + [_end_to_end(*each) for each in PAPER])),
    perform,
)

CLAIMS = [
    claim
    for name, runs in (("fast recipe", _fast), ("end to end", _end_to_end))
    for claim in (
        Claim(f"batch norm helps ({name})", runs("batch", "mish"), runs("none", "mish"), paper=97.66 - 97.43),
        Claim(f"Mish is above ReLU ({name})", runs("batch", "mish"), runs("batch", "relu"), paper=97.66 - 97.54),
    )
]


def section(lines: Sequence[Line]) -> str:
    """The table, in both ways of training, beside the paper's."""
    finished = Finished(lines)
    rows = [
        [
            f"{activation}, {NORMALIZATIONS[normalization]}",
            finished.cell(_fast(normalization, activation)),
            finished.cell(_end_to_end(normalization, activation)) if (normalization, activation) in PAPER else "",
            f"{PAPER[normalization, activation]:.2f}" if (normalization, activation) in PAPER else "",
        ]
        for normalization, activation in _COMBINATIONS
    ]
    headings = ["AUC, %", "ours: ML-1M, GMF, fast recipe", "ours: end to end, 6 epochs, k = 128", "paper: ML-20M, GMF"]
    return table(headings, rows)


if __name__ == "__main__":
    main(EXPERIMENT)
