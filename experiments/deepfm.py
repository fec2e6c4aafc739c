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
SCHEMES = ("coded", "low-rank")  # the first is the default of `replace_embeddings` at these budgets
BUDGETS = ["1/16", "1/32"]
AS_TRAINED = "as trained"
WAYS = {
    "fresh": "fitted to nothing",
    "distilled": "fitted to the tables",
    "tuned": "… and tuned for two epochs, without labels",
    "fine-tuned": "… or trained for two epochs, with labels",
}


def perform(settings: Settings) -> dict[str, Any]:
    """What the example measures: the AUC on the test as torch-rechub has it, and bytes, by what was done."""
    from examples.replace_in_torch_rechub import measure

    outcomes = measure(
        _split(settings["data"]),
        settings["budgets"],
        scheme=settings["scheme"],
        min_rows=settings["min_rows"],
        embed_dim=settings["embedding_dim"],
        epochs=settings["epochs_of_the_model"],
        seed=settings["seed"],
    )
    results: dict[str, Any] = {"auc": outcomes[AS_TRAINED].auc}
    return results | {name: {"auc": each.auc, "bytes": each.bytes} for name, each in outcomes.items()}


@functools.lru_cache(maxsize=1)
def _split(data: str) -> Any:
    from examples.replace_in_torch_rechub import read_movielens, split_by_time

    assert data == "movielens-1m"
    return split_by_time(read_movielens())


def runs(scheme: str = SCHEMES[0]) -> list[Settings]:
    """Those of one scheme, by seed."""
    shape = {"data": "movielens-1m", "scheme": scheme, "budgets": BUDGETS, "min_rows": 1_000, "embedding_dim": 32}
    return [{**shape, "epochs_of_the_model": 7, "seed": seed} for seed in SEEDS]


EXPERIMENT = Experiment("deepfm", [run for scheme in SCHEMES for run in runs(scheme)], perform)


def section(lines: Sequence[Line]) -> str:
    """The model as trained, and what becomes of it at each budget."""
    finished = Finished(lines)
    rows = [["the tables as trained", *cells(finished, SCHEMES[0], AS_TRAINED)]]
    rows += [
        [f"`{scheme}`, {budget}: {says}", *cells(finished, scheme, f"{budget}, {way}")]
        for scheme in SCHEMES
        for budget in BUDGETS
        for way, says in WAYS.items()
    ]
    return paragraphs(
        [
            "Not in the paper. DeepFM of torch-rechub on ML-1M: will a user give a film four stars or more? Of each "
            "user's ratings the last tenth is the test. AUC over all ratings of the test, as that library has it. "
            "`tableless.tune` makes the model answer as it did before, on inputs without labels.",
            table(["tables of users and films", "bytes of the tables", "AUC, %"], rows),
        ]
    )


def cells(finished: Finished, scheme: str, name: str) -> list[str]:
    """Bytes and AUC of one of the outcomes."""
    own = runs(scheme)
    return [finished.plain(own[:1], f"{name}.bytes"), finished.cell(own, f"{name}.auc")]


if __name__ == "__main__":
    main(EXPERIMENT)
