"""Learning online: one pass through a stream in time order, each batch predicted, then learned from."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tableless.data.loading import load_interactions
from tableless.files.whole import Line
from tableless.kernels import Floats, Int64s
from tableless.recommender.stream_samples import RESERVOIR, RecentItems, Reservoir

from .finished import NOT_RUN, Finished
from .online_ways import DIM, FOREVER, Asked, Learner, Popularity, Tables, Way, bytes_of_a_quarter
from .running import Experiment, Settings, main
from .writing import new_picture, save_picture, table

SEEDS = range(3)
WINDOWS = 20
GLOBO, TWEETINGS = "globo", "movietweetings-142k"
NAMES = {GLOBO: "Globo", TWEETINGS: "MovieTweetings"}
BATCH_SIZE = 1024
NEGATIVES = 4  # of each kind
POPULARITY, DECAYED, TRICK = "popularity so far", "decayed popularity", "hashing-trick"
GROWING, GROWING_LARGE = "growing table", "growing table, 4 times the bytes"
WAYS = [POPULARITY, DECAYED, TRICK, GROWING, GROWING_LARGE, "dhe"]
FIRST_CLICKS = (1, 10, 100)

# What did best on the first fifth of Globo, of 24 drawn settings for each way and two by hand (online_tuning.py).
_TABLES = {"rates": [0.3, 0.2, 1.0], "adapts": False, "initial_std": 0.1, "negatives": "both"}
TUNED: dict[str, dict[str, Any]] = {
    POPULARITY: {},
    DECAYED: {"half_life": 300},
    TRICK: _TABLES,
    GROWING: _TABLES,
    GROWING_LARGE: _TABLES,
    "dhe": {
        **{"user_rate": 0.3, "item_rate": 0.2, "bias_rate": 0.2, "adapts": False, "initial_std": 0.1},
        **{"half_life": 5_000, "network_rate": 1e-3, "popularity_rate": 1e-2, "replay": 0.2, "slowness": 0.999},
    },
}
_REMEMBERED = 20_000  # actions of the first window that are asked again at the end


def perform(settings: Settings) -> dict[str, Any]:
    """One pass: the AUC of each window before it is learned, and of the first one after it, and after everything."""
    users, items = actions_in_order(settings["data"], settings["share"])
    way = _way(settings, users, items)
    window = _window(len(users), settings)
    right = np.empty((len(users), 2 * NEGATIVES), np.float32)  # is each negative below the item that was chosen?
    seconds, again = 0.0, []
    first = users[:window], items[:window]
    for start, batch in _batches(users, items, settings):
        begun = time.perf_counter()
        scores = way.score(batch)
        way.learn(batch)
        seconds += time.perf_counter() - begun
        right[start : start + len(scores)] = below_the_chosen(scores)
        if start + len(scores) == window:
            again.append(auc_among(way, *first, seed=settings["seed"]))
    again.append(auc_among(way, *first, seed=settings["seed"]))
    number = numbers_of_clicks(items)
    early = {count: number < count for count in FIRST_CLICKS}
    return {
        **_both_kinds(right),
        "by_window": [_both_kinds(right[at : at + window]) for at in range(0, len(users), window)],
        "first_clicks": {str(count): _both_kinds(right[chosen]) for count, chosen in early.items()},
        "first_window_just_after": again[0],
        "first_window_at_the_end": again[-1],
        "bytes": way.num_bytes,
        "actions": len(users),
        "actions_per_second": round(len(users) / seconds),
    }


@functools.lru_cache(maxsize=1)
def actions_in_order(data: str, share: float = 1.0) -> tuple[Int64s, Int64s]:
    """User and item ids of the first actions, oldest first."""
    file = Path(os.environ.get("TABLELESS_DATA", ".")) / f"{data}.parquet"  # a stream that is no known dataset
    interactions = load_interactions(str(file) if file.exists() else data)
    assert interactions.times is not None
    order = np.argsort(interactions.times, kind="stable")[: int(share * len(interactions.items))]
    return interactions.user_ids[interactions.user_rows()[order]], interactions.item_ids[interactions.items[order]]


def below_the_chosen(scores: Floats) -> Floats:
    """1 for each negative that scores below the item that was chosen, and ½ for a tie."""
    own, others = scores[:, :1], scores[:, 1:]
    return (others < own).astype(np.float32) + (others == own).astype(np.float32) / 2


def auc_among(way: Way, users: Int64s, items: Int64s, *, seed: int) -> float:
    """The share of other items of the same actions that score below the one chosen, over a sample of the actions."""
    random = np.random.default_rng(seed)
    chosen = random.choice(len(users), min(_REMEMBERED, len(users)), replace=False)
    others = random.choice(np.unique(items), (len(chosen), NEGATIVES))
    candidates = np.concatenate([items[chosen, None], others], axis=1)
    return float(below_the_chosen(way.score(Asked(users[chosen], candidates, len(others)))).mean())


def numbers_of_clicks(items: Int64s) -> Int64s:
    """How many actions with the same item came before each: [actions]."""
    order = np.argsort(items, kind="stable")
    in_order = items[order]
    number = np.empty(len(items), np.int64)
    number[order] = np.arange(len(items)) - np.searchsorted(in_order, in_order)
    return number


def _both_kinds(right: NDArray[np.float32]) -> dict[str, float]:
    """The AUC against items of all that were seen, and against recent ones."""
    return {"auc": float(right[:, :NEGATIVES].mean()), "auc_recent": float(right[:, NEGATIVES:].mean())}


def _batches(users: Int64s, items: Int64s, settings: Settings) -> Iterator[tuple[int, Asked]]:
    """Where each batch starts, and what it asks. All ways are asked the same."""
    random, size = np.random.default_rng(settings["seed"]), settings["batch_size"]
    seen, recent = Reservoir(RESERVOIR, settings["seed"]), RecentItems(10_000)
    for start in range(0, len(users), size):
        own = items[start : start + size]
        seen.offer(own)
        anything = seen.values[random.integers(0, len(seen.values), (len(own), NEGATIVES))]
        lately = recent.draw(random, len(own), NEGATIVES) if start else random.choice(own, (len(own), NEGATIVES))
        candidates = np.concatenate([own[:, None], anything, lately], axis=1)
        yield start, Asked(users[start : start + size], candidates, len(seen.values))
        recent.add(own)


def _window(num_actions: int, settings: Settings) -> int:
    """Actions of a window: whole batches."""
    batches = -(-num_actions // (settings["windows"] * settings["batch_size"]))
    return batches * int(settings["batch_size"])


def _way(settings: Settings, users: Int64s, items: Int64s) -> Way:
    scheme, tuned, seed = settings["scheme"], settings["tuned"], settings["seed"]
    if scheme == POPULARITY:
        return Popularity(items, half_life=FOREVER)
    if scheme == DECAYED:
        return Popularity(items, **tuned)
    num_bytes = bytes_of_a_quarter(users, items)
    if scheme == "dhe":
        return Learner(num_bytes=num_bytes, seed=seed, **tuned)
    dim = DIM // 4 if scheme == GROWING else DIM
    return Tables(users, items, growing=scheme != TRICK, dim=dim, num_bytes=num_bytes, seed=seed, **tuned)


def runs_of(data: str, scheme: str) -> list[Settings]:
    """The runs of a way, one for each seed."""
    shape = {"data": data, "share": 1.0, "batch_size": BATCH_SIZE, "windows": WINDOWS}
    return [{**shape, "scheme": scheme, "tuned": TUNED[scheme], "seed": seed} for seed in SEEDS]


EXPERIMENT = Experiment(
    "online", list(chain.from_iterable(runs_of(data, way) for data in NAMES for way in WAYS)), perform
)


def section(lines: Sequence[Line]) -> str:
    """For each stream a table and the curves."""
    finished = Finished(lines)
    parts = [
        "Not in the paper. Actions in time order, in batches of 1024: each is predicted, then learned from, against "
        "four items drawn from those seen so far, and against four drawn by popularity that halves with every 10,000 "
        "actions. Nothing is known beforehand. `dhe` is the library's stream learner. It, `hashing-trick` and the "
        "growing table have a quarter of the bytes that rows of 32 numbers would take for all ids; the growing table "
        "has rows of 8 numbers, and once of 32; its ids stand beside them. All settings were chosen on the first "
        "fifth of Globo, of 24 to 26 for each way (6 half-lives for decayed popularity). An item's first clicks are "
        "its own, whenever they come. The last columns ask about the actions "
        "of the first "
        "twentieth again, among its own items: what is lost between them is forgotten."
    ]
    for data, name in NAMES.items():
        parts += [
            f"### {name}",
            table(_HEADINGS, [_row(finished, data, way) for way in WAYS]),
            _picture(finished, data),
        ]
    return "\n\n".join(parts)


_HEADINGS = [
    "AUC, %", "whole pass", "against recent items", "first window", "last", "first click", "first 10", "first 100",
    "first window, just learned", "first window, at the end",
]  # fmt: skip


def _row(finished: Finished, data: str, way: str) -> list[str]:
    runs = runs_of(data, way)
    clicks = [f"first_clicks.{count}.auc" for count in FIRST_CLICKS]
    again = ["first_window_just_after", "first_window_at_the_end"]
    ends = [_window_cell(finished, data, way, window) for window in (0, -1)]
    cells = [finished.cell(runs, metric) for metric in ("auc", "auc_recent", *clicks, *again)]
    return [way, *cells[:2], *ends, *cells[2:]]


def _windows(finished: Finished, data: str, way: str) -> list[list[float]]:
    """The AUC by window, of each seed that is finished."""
    found = [finished.line(run) for run in runs_of(data, way)]
    return [[own["auc"] for own in line["results"]["by_window"]] for line in found if line and "results" in line]


def _window_cell(finished: Finished, data: str, way: str, window: int) -> str:
    values = [own[window] for own in _windows(finished, data, way)]
    return f"{100 * sum(values) / len(values):.2f}" if values else ""


def _picture(finished: Finished, data: str) -> str:
    if not any(_windows(finished, data, way) for way in WAYS):
        return NOT_RUN
    figure = new_picture()
    axes = figure.subplots()
    for way in WAYS:
        for number, own in enumerate(_windows(finished, data, way)):
            color = f"C{WAYS.index(way)}"
            axes.plot(range(1, len(own) + 1), own, color=color, label=way if not number else None)
    axes.set(xlabel="window, a twentieth of the actions each", ylabel="AUC before learning")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return save_picture(figure, f"online-{data}", says=f"AUC over time, {NAMES[data]}")


if __name__ == "__main__":
    main(EXPERIMENT)
