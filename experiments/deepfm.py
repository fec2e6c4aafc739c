"""Replacing the tables of a DeepFM that was trained elsewhere: `examples/replace_in_torch_rechub.py`, with lines."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tableless.files.whole import Line

from .finished import Finished
from .running import Experiment, Settings, main
from .writing import paragraphs, table

SEEDS = range(3)
BUDGETS = ["1/2 parameters", "1/4 parameters"]
AS_TRAINED = "as trained"
WAYS = {
    "fresh": "new networks, fitted to nothing",
    "distilled": "networks fitted to the tables",
    "fine-tuned": "… and trained for two epochs more",
}


def perform(settings: Settings) -> dict[str, Any]:
    """What the example measures: the AUC on the test as torch-rechub has it, and parameters, by what was done."""
    from examples.replace_in_torch_rechub import measure

    outcomes = measure(
        _split(settings["data"]),
        settings["budgets"],
        min_rows=settings["min_rows"],
        embed_dim=settings["embedding_dim"],
        epochs=settings["epochs_of_the_model"],
        seed=settings["seed"],
    )
    results: dict[str, Any] = {"auc": outcomes[AS_TRAINED].auc}
    return results | {name: {"auc": each.auc, "parameters": each.parameters} for name, each in outcomes.items()}


@functools.lru_cache(maxsize=1)
def _split(data: str) -> Any:
    from examples.replace_in_torch_rechub import read_movielens, split_by_time

    assert data == "movielens-1m"
    return split_by_time(read_movielens())


def runs() -> list[Settings]:
    """All of them, by seed."""
    shape = {"data": "movielens-1m", "budgets": BUDGETS, "min_rows": 1_000, "embedding_dim": 32}
    return [{**shape, "epochs_of_the_model": 7, "seed": seed} for seed in SEEDS]


EXPERIMENT = Experiment("deepfm", runs(), perform)


def section(lines: Sequence[Line]) -> str:
    """The model as trained, and what becomes of it at each budget."""
    finished = Finished(lines)
    rows = [["the tables as trained", *cells(finished, AS_TRAINED)]]
    rows += [
        [f"{budget}: {says}", *cells(finished, f"{budget}, {way}")] for budget in BUDGETS for way, says in WAYS.items()
    ]
    return paragraphs(
        [
            "Not in the paper. DeepFM of torch-rechub on ML-1M: will a user give a film four stars or more? Of each "
            "user's ratings the last tenth is the test. AUC over all ratings of the test, as that library has it.",
            table(["tables of users and films", "parameters of the model", "AUC, %"], rows),
        ]
    )


def cells(finished: Finished, name: str) -> list[str]:
    """Parameters and AUC of one of the outcomes."""
    return [finished.plain(runs()[:1], f"{name}.parameters"), finished.cell(runs(), f"{name}.auc")]


if __name__ == "__main__":
    main(EXPERIMENT)
