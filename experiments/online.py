"""Learning online: one pass through Globo's news clicks in time order, each batch predicted, then learned from."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tableless.data.loading import load_interactions
from tableless.embedding.scheme import EmbeddingScheme
from tableless.embedding.tables import HybridHashing
from tableless.files.whole import Line
from tableless.recommender.models import GMF, Recommender
from tableless.recommender.runs import ModelConfig, size_scheme
from tableless.recommender.streaming import RESERVOIR, Reservoir, StreamReport, train_on_stream
from tableless.recommender.training import TrainConfig

from .finished import NOT_RUN, Finished
from .running import Experiment, Settings, main
from .writing import new_picture, save_picture, table

SEEDS = range(2)
WINDOWS = 20
DATA = "globo"
BATCH_SIZE = 2048
GROWING, POPULARITY = "full, growing", "popularity so far"
WAYS = [POPULARITY, "hashing-trick", GROWING, "dhe"]
_REMEMBERED = 20_000  # actions of the first window that are asked again at the end

Ids = NDArray[np.int64]


def perform(settings: Settings) -> dict[str, Any]:
    """One pass: the AUC of each window before it is learned, and of the first one after it, and after everything."""
    users, items = actions_in_order(settings["data"])
    if settings["scheme"] == POPULARITY:
        return _popularity(users, items, settings)
    training = TrainConfig(batch_size=settings["batch_size"], seed=settings["seed"])
    model = _model(settings, users, items)
    window = _window(len(users), settings)
    first_users, first_items = users[:window], items[:window]
    reports: list[StreamReport] = []
    remembered: list[float] = []

    def note(report: StreamReport) -> None:
        if report.num_actions % window == 0 or report.num_actions == len(users):
            reports.append(report)
            if len(reports) == 1:
                remembered.append(auc_among(model, first_users, first_items, seed=training.seed))

    train_on_stream(model, _batches(users, items, training.batch_size), training, on_batch=note)
    remembered.append(auc_among(model, first_users, first_items, seed=training.seed))
    return {
        "auc": reports[-1].auc,
        "auc_by_window": window_aucs(reports),
        "first_window_just_after": remembered[0],
        "first_window_at_the_end": remembered[1],
        "num_parameters": model.num_parameters,
        "actions": len(users),
    }


@functools.lru_cache(maxsize=1)
def actions_in_order(data: str) -> tuple[Ids, Ids]:
    """User and item ids of all actions, oldest first."""
    interactions = load_interactions(data)
    assert interactions.times is not None
    order = np.argsort(interactions.times, kind="stable")
    return interactions.user_ids[interactions.user_rows()[order]], interactions.item_ids[interactions.items[order]]


def window_aucs(reports: Sequence[StreamReport]) -> list[float]:
    """The mean AUC of each window, from reports that have the mean since the start."""
    sums = [0.0, *(report.auc * report.num_actions for report in reports)]
    counts = [0, *(report.num_actions for report in reports)]
    return [(sums[i + 1] - sums[i]) / (counts[i + 1] - counts[i]) for i in range(len(reports))]


@torch.no_grad()
def auc_among(model: Recommender, users: Ids, items: Ids, *, seed: int) -> float:
    """The share of other items of the same window that score below the one chosen, over a sample of actions."""
    generator = np.random.default_rng(seed)
    chosen = generator.choice(len(users), min(_REMEMBERED, len(users)), replace=False)
    others = generator.choice(np.unique(items), (len(chosen), 4))
    candidates = np.concatenate([items[chosen, None], others], axis=1)
    model.eval()
    scores = model(torch.from_numpy(users[chosen]), torch.from_numpy(candidates))
    model.train()
    own, rivals = scores[:, :1], scores[:, 1:]
    return float(((rivals < own).float() + (rivals == own).float() / 2).mean())


def _popularity(users: Ids, items: Ids, settings: Settings) -> dict[str, Any]:
    """Everybody gets what most have clicked so far; against the negatives that the models get, too."""
    distinct, rows = np.unique(items, return_inverse=True)
    counts = np.zeros(len(distinct), np.int64)
    reservoir = Reservoir(RESERVOIR, settings["seed"])
    window = _window(len(users), settings)
    reports: list[StreamReport] = []
    seen, total = 0, 0.0
    for start in range(0, len(items), settings["batch_size"]):
        part = slice(start, start + settings["batch_size"])
        reservoir.offer(items[part])
        others = counts[
            np.searchsorted(distinct, reservoir.draw(len(items[part]), TrainConfig().negatives(are_shared=False)))
        ]
        own = counts[rows[part], None]
        total += float(((others < own) + (others == own) / 2).mean(-1).sum())
        seen += len(items[part])
        counts += np.bincount(rows[part], minlength=len(distinct))
        if seen % window == 0 or seen == len(items):
            reports.append(StreamReport(seen, float("nan"), total / seen, float("nan")))
    return {"auc": reports[-1].auc, "auc_by_window": window_aucs(reports), "actions": seen}


def _window(num_actions: int, settings: Settings) -> int:
    """Actions of a window: whole batches."""
    batches = -(-num_actions // (settings["windows"] * settings["batch_size"]))
    return batches * int(settings["batch_size"])


def _model(settings: Settings, users: Ids, items: Ids) -> Recommender:
    seed = settings["seed"]
    schemes = [_scheme(settings, np.unique(ids), 2 * seed + side) for side, ids in enumerate((users, items))]
    return GMF(users=schemes[0], items=schemes[1], seed=seed)


def _scheme(settings: Settings, distinct: Ids, seed: int) -> EmbeddingScheme:
    """A scheme of a quarter of the table, or the table itself.

    A table that grows by a row when an id first comes is the same as one that has all rows from the start: until then
    nothing reads or changes them.
    """
    if settings["scheme"] == GROWING:
        table = HybridHashing(32, num_frequent=len(distinct), num_rows=1, num_hashes=1, seed=seed)
        table.frequent.assign(torch.from_numpy(distinct))
        return table
    config = ModelConfig(scheme=settings["scheme"])
    return size_scheme(config, len(distinct) * 32 // 4, len(distinct), seed=seed)


def _batches(users: Ids, items: Ids, batch_size: int) -> Iterator[tuple[Ids, Ids]]:
    for start in range(0, len(users), batch_size):
        yield users[start : start + batch_size], items[start : start + batch_size]


def _runs(scheme: str) -> list[Settings]:
    shape = {"data": DATA, "batch_size": BATCH_SIZE, "windows": WINDOWS}
    return [{**shape, "scheme": scheme, "seed": seed} for seed in (range(1) if scheme == POPULARITY else SEEDS)]


EXPERIMENT = Experiment("online", list(chain.from_iterable(_runs(way) for way in WAYS)), perform)


def section(lines: Sequence[Line]) -> str:
    """The curves, their beginning, middle and end, and what is left of the first window."""
    finished = Finished(lines)
    rows = [
        [
            way,
            finished.cell(_runs(way)),
            *(_window_cell(finished, way, window) for window in (0, WINDOWS // 2, -1)),
            finished.cell(_runs(way), "first_window_just_after") if way != POPULARITY else "",
            finished.cell(_runs(way), "first_window_at_the_end") if way != POPULARITY else "",
        ]
        for way in WAYS
    ]
    headings = ["AUC, %", "whole pass", "first window", "middle", "last", "first, just learned", "first, at the end"]
    return "\n\n".join(
        [
            "Not in the paper. 2,988,181 clicks in time order, in batches of 2048: each is predicted, then learned "
            "from, against four items drawn from those seen so far. Nothing is known beforehand; `dhe` and "
            "`hashing-trick` have a quarter of the final table's size. The last two columns ask about clicks of the "
            "first twentieth again, among its own items: what is lost between them is forgotten.",
            table(headings, rows),
            _picture(finished),
        ]
    )


def _windows(finished: Finished, way: str) -> list[list[float]]:
    """The AUC by window, of each seed that is finished."""
    found = [finished.line(run) for run in _runs(way)]
    return [line["results"]["auc_by_window"] for line in found if line and "results" in line]


def _window_cell(finished: Finished, way: str, window: int) -> str:
    values = [own[window] for own in _windows(finished, way)]
    return f"{100 * sum(values) / len(values):.2f}" if values else ""


def _picture(finished: Finished) -> str:
    if not any(_windows(finished, way) for way in WAYS):
        return NOT_RUN
    figure = new_picture()
    axes = figure.subplots()
    for way in WAYS:
        for number, own in enumerate(_windows(finished, way)):
            color = f"C{WAYS.index(way)}"
            axes.plot(range(1, len(own) + 1), own, color=color, label=way if not number else None)
    axes.set(xlabel="window, a twentieth of the clicks each", ylabel="AUC before learning")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return save_picture(figure, "online", says="AUC over time")


if __name__ == "__main__":
    main(EXPERIMENT)
