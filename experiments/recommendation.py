"""What the runs of Figure 2 mean for somebody who has to choose: how far DHE gets, and which scheme at which budget."""

from __future__ import annotations

from tableless import SCHEMES

from .claims import SIMILAR
from .figure2 import COMPRESSED, PANELS, runs_of
from .finished import NOT_RUN, SHOWN, Difference, Finished
from .running import Settings
from .training_runs import RECIPES, Recipe
from .writing import table

BUDGETS = ["1/1", "1/2", "1/4", "1/8"]


def how_far_dhe_gets(finished: Finished) -> str:
    """What DHE keeps of the full table that was trained by the same recipe, above popularity and of its NDCG@10."""
    rows = []
    for panel in PANELS:
        for recipe, name in RECIPES.items():
            full, dhe = runs_of(panel, "full", "1/1", recipe), runs_of(panel, "dhe", "1/4", recipe)
            if not full:
                continue
            popularity = finished.plain(full[:1], "popularity_auc", scale=100, digits=2)
            cells = [*finished.cells(full), *finished.cells(dhe)]
            rows.append([panel, name, popularity, *cells, *_shares(finished, full, dhe)])
    what = [f"{who}: {label}" for who in ("full table", "DHE, 1/4") for label in SHOWN.values()]
    headings = ["", "recipe", "popularity: AUC, %", *what, "share of the way in AUC", "share of the NDCG@10"]
    return table(headings, rows, num_texts=2)


def _shares(finished: Finished, full: list[Settings], dhe: list[Settings]) -> list[str]:
    floor, top, own = finished.mean(full, "popularity_auc"), finished.mean(full), finished.mean(dhe)
    best, kept = finished.mean(full, "ndcg@10"), finished.mean(dhe, "ndcg@10")
    if finished.capped([*full, *dhe]):
        return ["stopped at the limit"] * 2
    way = share = NOT_RUN
    if floor is not None and top is not None and own is not None:
        # Where the table is hardly better than popularity there is no way to go, and a share of it says nothing.
        way = f"{(own - floor) / (top - floor):.0%}" if top - floor > 0.01 else "no gap"
    if best and kept is not None:
        share = f"{kept / best:.0%}"
    return [way, share]


def recommendation(finished: Finished, recipe: Recipe = "fast") -> str:
    """The best of all schemes and the best of those open to new ids, for each budget; ties are named."""
    rows = []
    for panel in PANELS:
        for budget in BUDGETS:
            schemes = ["full"] if budget == "1/1" else COMPRESSED
            schemes = [scheme for scheme in schemes if runs_of(panel, scheme, budget, recipe)]
            if not schemes:
                continue
            opened = [scheme for scheme in schemes if SCHEMES[scheme].open_vocabulary]
            missing = sum(finished.mean(runs_of(panel, scheme, budget, recipe)) is None for scheme in schemes)
            best = [_best(finished, panel, budget, recipe, schemes, metric) for metric in SHOWN]
            best.append(_best(finished, panel, budget, recipe, opened, "auc") if opened else "none")
            rows.append([panel, budget, *best, f"{missing} of {len(schemes)}" if missing else ""])
    headings = ["", "budget", *(f"best by {label}" for label in SHOWN.values())]
    headings += ["best by AUC that answers for new ids", "schemes not run yet"]
    return table(headings, rows, num_texts=5)


def _best(finished: Finished, panel: str, budget: str, recipe: Recipe, schemes: list[str], metric: str) -> str:
    """The scheme with the highest mean, and those that are not clearly below it; who was stopped is not ranked."""
    points = {scheme: runs_of(panel, scheme, budget, recipe) for scheme in schemes}
    stopped = [scheme for scheme, runs in points.items() if finished.capped(runs)]
    means = {scheme: finished.mean(runs, metric) for scheme, runs in points.items() if scheme not in stopped}
    known = {scheme: mean for scheme, mean in means.items() if mean is not None}
    aside = f"; stopped at the limit: {', '.join(stopped)}" if stopped else ""
    if not known:
        return NOT_RUN + aside
    best, *others = sorted(known, key=lambda scheme: -known[scheme])
    tied = []
    for other in others:
        difference = finished.difference(points[best], points[other], metric)
        if difference is not None and not _is_ahead(difference):
            tied.append(other)
    also = f"; not clearly below: {', '.join(tied)}" if tied else ""
    return f"{best} {finished.cell(points[best], metric)}{also}{aside}"


def _is_ahead(difference: Difference) -> bool:
    """By its interval; a single pair has none, and has to be ahead by more than what counts as similar."""
    return difference.mean > (SIMILAR if difference.half_width is None else difference.half_width)
