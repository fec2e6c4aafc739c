"""Choices: constants of the library that were found by trying, each with what was tried beside it.

A choice is judged by what validation data says, AUC and NDCG@10 both; test data has no part in it. To try another value
of a constant, add it to the alternatives and run `python -m experiments choices`.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tableless.data.config import DataConfig
from tableless.files.whole import Line

from .finished import SHOWN, Finished
from .running import Experiment, Settings, main
from .training_runs import BOOKS, MOVIELENS, name_of_data, settings
from .training_runs import perform as train_and_measure
from .writing import paragraphs, table

SEEDS = range(2)
DATA: list[DataConfig] = [MOVIELENS, BOOKS]


@dataclass(frozen=True)
class Choice:
    """A constant, where it stands (`module:NAME`, `module:CLASS.NAME` or `module:NAME[key]`), and values to try.

    A constant that is the default of an argument of `from_budget` is set by that argument, its `option`.
    """

    name: str
    place: str
    alternatives: list[Any]
    scheme: str = "dhe"
    option: str | None = None

    def in_use(self) -> Any:
        """The value that the library has."""
        module, _, rest = self.place.partition(":")
        constant, _, key = rest.rstrip("]").partition("[")
        value = operator.attrgetter(constant)(importlib.import_module(module))
        return value[key] if key else value

    def runs(self, data: DataConfig, value: Any) -> list[Settings]:
        """A quarter of the table with this value, by seed."""
        budget = "1/1" if self.scheme == "full" else "1/4"
        options = {self.option: value} if self.option else {}
        what = {"choice": self.name, "value": value}
        return [settings(data, self.scheme, budget, seed, recipe="fast", options=options) | what for seed in SEEDS]


_STAGES, _GMF, _FIT, _REGRESSION, _NETWORK = (
    "tableless.recommender.stage_settings",
    "tableless.recommender.gmf",
    "tableless.embedding.distillation",
    "tableless.embedding.regression",
    "tableless.embedding.deep_hash",
)
_ALL = [
    Choice("weight decay of the table", f"{_GMF}:GMF.table_decay", [0.0, 0.1, 0.2, 0.3], scheme="full"),
    Choice("weight decay of the table to learn from", f"{_GMF}:GMF.table_decay", [0.0, 0.1, 0.2, 0.3]),
    Choice("power of σ in the weights of the fit", f"{_GMF}:_POWER", [0.0, 0.125, 0.25, 0.5]),
    Choice("epochs of the last stage", f"{_STAGES}:FINE_TUNING_EPOCHS", [5, 10, 20]),
    Choice("learning rate of the fit", f"{_REGRESSION}:_RATE", [0.01, 0.03, 0.06]),
    Choice("share of an expert's rows in a batch of the fit", f"{_REGRESSION}:_SHARE", [1 / 16, 1 / 8, 1 / 4]),
    Choice("visits of all rows together in the fit", f"{_FIT}:_ALL_VISITS", [1_500_000, 3_000_000, 6_000_000]),
    Choice("parameters of an expert", f"{_NETWORK}:_PARAMETERS_PER_EXPERT", [75_000, 110_000, 150_000]),
    Choice("number of hashes", f"{_NETWORK}:_BEST_NETWORK[num_hashes]", [32, 64, 128], option="num_hashes"),
    Choice("hidden layers", f"{_NETWORK}:_BEST_NETWORK[depth]", [3, 4, 5, 6], option="depth"),
    Choice("batch norm", f"{_NETWORK}:_BEST_NETWORK[normalization]", ["none", "batch"], option="normalization"),
    Choice(
        "share of the rows in head-and-tail",
        "tableless.embedding.head_and_tail:_HEAD_SHARE",
        [0.1, 0.25, 0.5],
        scheme="head-and-tail",
        option="head_share",
    ),
]
CHOICES = {choice.name: choice for choice in _ALL}


def perform(settings: Settings) -> dict[str, Any]:
    """Train and measure with the constant as the run has it."""
    choice = CHOICES[settings["choice"]]
    if choice.option:
        return train_and_measure(settings)
    with mock.patch(choice.place.replace(":", "."), settings["value"]):
        return train_and_measure(settings)


EXPERIMENT = Experiment(
    "choices",
    [run for choice in _ALL for data in DATA for value in choice.alternatives for run in choice.runs(data, value)],
    perform,
)


def section(lines: Sequence[Line]) -> str:
    """A table of all choices: each value on each dataset, by validation data alone; the one in use is marked."""
    finished = Finished(lines)
    rows = []
    for choice in _ALL:
        for value in choice.alternatives:
            cells = [
                finished.cell(choice.runs(data, value), f"validation.{metric}") for data in DATA for metric in SHOWN
            ]
            in_use = "in use" if value == choice.in_use() else ""
            rows.append([choice.name, f"`{choice.place.partition(':')[2]}`", f"{value}", in_use, *cells])
    of_data = [f"{name_of_data(vars(data))}: {label}" for data in DATA for label in SHOWN.values()]
    return paragraphs(
        [
            "Constants of the library that were found by trying. GMF, fast recipe, 1/4 (`full`: all of it), "
            "validation data.",
            table(["what", "constant", "value", "", *of_data], rows, num_texts=4),
        ]
    )


if __name__ == "__main__":
    main(EXPERIMENT)
