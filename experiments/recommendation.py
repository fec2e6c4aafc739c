"""What the runs of Figure 2 mean for somebody who has to choose: how far DHE gets, and which scheme at which budget."""

from __future__ import annotations

from tableless import SCHEMES

from .claims import SIMILAR
from .figure2 import COMPRESSED, PANELS, runs_of
from .finished import NOT_RUN, Difference, Finished
from .writing import table

BUDGETS = ["1/1", "1/2", "1/4", "1/8"]


def how_far_dhe_gets(finished: Finished) -> str:
    """DHE between popularity, which knows nobody, and the full table."""
    rows = []
    for panel in PANELS:
        full, dhe = runs_of(panel, "full", "1/1"), runs_of(panel, "dhe", "1/4")
        floor, top, own = finished.mean(full, "popularity_auc"), finished.mean(full), finished.mean(dhe)
        share = NOT_RUN
        if floor is not None and top is not None and own is not None:
            # Where the table is hardly better than popularity there is no way to go, and a share of it says nothing.
            share = f"{(own - floor) / (top - floor):.0%}" if top - floor > 0.01 else "no gap"
        rows.append([panel, finished.cell(full[:1], "popularity_auc"), finished.cell(full), finished.cell(dhe), share])
    return table(["AUC, %", "popularity", "full table", "DHE, 1/4", "share of the way"], rows)


def recommendation(finished: Finished) -> str:
    """The best of all schemes and the best of those open to new ids, for each budget; ties are named."""
    rows = []
    for panel in PANELS:
        for budget in BUDGETS:
            schemes = ["full"] if budget == "1/1" else COMPRESSED
            if not any(runs_of(panel, scheme, budget) for scheme in schemes):
                continue
            done = {scheme: finished.mean(runs_of(panel, scheme, budget)) for scheme in schemes}
            missing = sum(mean is None for mean in done.values())
            opened = [scheme for scheme in schemes if SCHEMES[scheme].open_vocabulary]
            rows.append(
                [
                    panel,
                    budget,
                    _best(finished, panel, budget, schemes),
                    _best(finished, panel, budget, opened) if opened else "none",
                    f"{missing} of {len(schemes)}" if missing else "",
                ]
            )
    headings = ["", "budget", "best (AUC, %)", "best that answers for new ids", "schemes not run yet"]
    return table(headings, rows, num_texts=4)


def _best(finished: Finished, panel: str, budget: str, schemes: list[str]) -> str:
    """The scheme with the highest mean, and those that are not clearly below it."""
    means = {scheme: finished.mean(runs_of(panel, scheme, budget)) for scheme in schemes}
    ranked = sorted((scheme for scheme in schemes if means[scheme] is not None), key=lambda each: -(means[each] or 0))
    if not ranked:
        return NOT_RUN
    best, *others = ranked
    tied = []
    for other in others:
        difference = finished.difference(runs_of(panel, best, budget), runs_of(panel, other, budget))
        if difference is not None and not _is_ahead(difference):
            tied.append(other)
    also = f"; not clearly below: {', '.join(tied)}" if tied else ""
    return f"{best} {finished.cell(runs_of(panel, best, budget))}{also}"


def _is_ahead(difference: Difference) -> bool:
    """By its interval; a single pair has none, and has to be ahead by more than what counts as similar."""
    return difference.mean > (SIMILAR if difference.half_width is None else difference.half_width)
