"""A sentence model of transformers without its table of tokens: `examples/replace_in_transformers.py`, with lines."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tableless.files.whole import Line

from .finished import Finished
from .running import Experiment, Settings, main
from .writing import paragraphs, table

SEEDS = range(3)
SCHEMES = ("coded", "low-rank")
BUDGETS = ("1/16", "1/32")
WAYS = {"replaced": "fitted to the table", "tuned": "… and tuned for two epochs"}


def perform(settings: Settings) -> dict[str, Any]:
    """What the example measures: the share of nearest neighbours that stay, and bytes, by what was done."""
    from examples.replace_in_transformers import measure

    model, titles = _inputs(settings["seed"])
    budget, own = settings["budget"], {name: settings[name] for name in ("scheme", "seed")}
    outcomes = measure(model, titles, budget, **own)
    return {name: {"recall": each.recall, "bytes": each.bytes} for name, each in outcomes.items()}


@functools.lru_cache(maxsize=1)
def _inputs(seed: int) -> tuple[Any, Any]:
    from examples.replace_in_transformers import read_model, read_titles, weights_folder

    folder = weights_folder()
    return read_model(folder), read_titles(folder, seed=seed)


def runs_of(scheme: str, budget: str) -> list[Settings]:
    """The runs of one scheme. The seed draws the titles."""
    what = {"model": "all-MiniLM-L6-v2", "data": "bookcrossing", "scheme": scheme, "budget": budget}
    return [{**what, "seed": seed} for seed in SEEDS]


EXPERIMENT = Experiment(
    "sentences", [run for scheme in SCHEMES for budget in BUDGETS for run in runs_of(scheme, budget)], perform
)


def section(lines: Sequence[Line]) -> str:
    """What is left at each budget."""
    finished = Finished(lines)
    rows = [
        [f"`{scheme}`, {budget}: {says}", finished.plain(own[:1], f"{way}.bytes"), finished.cell(own, f"{way}.recall")]
        for scheme in SCHEMES
        for budget in BUDGETS
        for own in [runs_of(scheme, budget)]
        for way, says in WAYS.items()
    ]
    return paragraphs(
        [
            "Not in the paper. all-MiniLM-L6-v2, a sentence model, in Hugging Face's transformers; the sentences are "
            "titles of books. Of the ten titles that are nearest to a title by the model as it was, so many are among "
            "the ten nearest. 1,024 other titles are there to tune with. Seeds draw the titles.",
            table(["table of 30,522 tokens", "bytes of the table", "neighbours that stay, %"], rows),
        ]
    )


if __name__ == "__main__":
    main(EXPERIMENT)
