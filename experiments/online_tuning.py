"""Settings for streams: each way of `online.py` gets up to 26 (24 drawn, 2 by hand), on the first fifth of Globo."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from tableless.files.whole import Line

from .finished import Finished
from .online import BATCH_SIZE, DECAYED, GLOBO, GROWING, GROWING_LARGE, TRICK, WINDOWS, perform
from .running import Experiment, Settings, main
from .writing import table

DRAWS = 24
_ROWS: dict[str, Sequence[Any]] = {
    "user_rate": (0.03, 0.1, 0.3, 1.0, 2.0),
    "item_rate": (0.02, 0.05, 0.1, 0.2, 0.5),
    "bias_rate": (0.02, 0.05, 0.1, 0.2, 0.5),
    "adapts": (True, False),
    "initial_std": (0.03, 0.1, 0.3),
}
_CHOICES: dict[str, dict[str, Sequence[Any]]] = {
    "tables": {**_ROWS, "negatives": ("seen", "both")},
    "dhe": {
        **_ROWS,
        "half_life": (3_000, 10_000, 30_000),
        "network_rate": (1e-3, 3e-3),
        "popularity_rate": (3e-3, 1e-2, 3e-2),
        "replay": (0.1, 0.2),
        "slowness": (0.99, 0.999),
    },
}
# Chosen by eye, after the draws: plain steps with a high rate of the item's bias did best for all of them.
_BY_HAND: dict[str, list[dict[str, Any]]] = {
    "tables": [
        {"rates": rates, "adapts": False, "initial_std": 0.1, "negatives": "both"}
        for rates in ([0.3, 0.2, 1.0], [0.3, 0.3, 0.3])
    ],
    "dhe": [
        {
            **{"user_rate": 0.3, "item_rate": 0.2, "bias_rate": rate, "adapts": False, "initial_std": 0.1},
            **{"half_life": 5_000, "network_rate": 1e-3, "popularity_rate": 1e-2, "replay": 0.2, "slowness": 0.999},
        }
        for rate in (0.2, 0.5)
    ],
}
_OF_WAY = {TRICK: "tables", GROWING: "tables", GROWING_LARGE: "tables", "dhe": "dhe"}
_HALF_LIVES = (300, 1_000, 3_000, 10_000, 30_000, 100_000)
WAYS = (DECAYED, *_OF_WAY)


def drawn_settings(way: str) -> list[dict[str, Any]]:
    """What is tried: for all tables the same."""
    if way == DECAYED:
        return [{"half_life": half_life} for half_life in _HALF_LIVES]
    random, choices = np.random.default_rng(0), _CHOICES[_OF_WAY[way]]
    drawn = []
    for _ in range(DRAWS):
        own = {name: values[int(random.integers(len(values)))] for name, values in choices.items()}
        rates = {} if way == "dhe" else {"rates": [own.pop(f"{name}_rate") for name in ("user", "item", "bias")]}
        if own | rates not in drawn:
            drawn.append(own | rates)
    return drawn + _BY_HAND[_OF_WAY[way]]


def _runs(way: str) -> list[Settings]:
    shape = {"data": GLOBO, "share": 0.2, "batch_size": BATCH_SIZE, "windows": WINDOWS, "scheme": way, "seed": 0}
    return [{**shape, "tuned": tuned} for tuned in drawn_settings(way)]


EXPERIMENT = Experiment("online_tuning", list(chain.from_iterable(_runs(way) for way in WAYS)), perform)


def merit(results: dict[str, Any]) -> float:
    """What is chosen by: the mean of both AUCs."""
    return (results["auc"] + results["auc_recent"]) / 2


def best(way: str, lines: Sequence[Line]) -> dict[str, Any] | None:
    """The settings that did best, if any are finished."""
    finished = Finished(lines)
    done = [line for run in _runs(way) if (line := finished.line(run)) and "results" in line]
    return max(done, key=lambda line: merit(line["results"]))["tuned"] if done else None


def section(lines: Sequence[Line]) -> str:
    """Of each way the best of its settings, and how far the others are."""
    finished = Finished(lines)
    rows = []
    for way in WAYS:
        merits = sorted((merit(line["results"]) for run in _runs(way) if (line := finished.line(run))), reverse=True)
        if merits:
            figures = [f"{100 * value:.2f}" for value in (merits[0], merits[len(merits) // 2], merits[-1])]
            chosen = ", ".join(f"{name} {value}" for name, value in (best(way, lines) or {}).items())
            rows.append([way, str(len(merits)), *figures, chosen])
    says = "The mean of both AUCs on the first fifth of Globo, one seed: the best, median and worst of the settings."
    return f"{says}\n\n{table(['way', 'settings', 'best', 'median', 'worst', 'best settings'], rows)}"


if __name__ == "__main__":
    main(EXPERIMENT)
