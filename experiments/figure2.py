"""Figure 2 (RQ1): accuracy against model size, every scheme, GMF and MLP, by the paper's recipe and by ours.

By the paper's recipe only what its claims need: a quarter of the table. By the fast recipe more sizes, and larger data.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tableless import SCHEMES
from tableless.data.config import DataConfig
from tableless.files.whole import Line
from tableless.recommender.comparison_report import look_of
from tableless.recommender.training import TrainConfig

from .claims import Claim
from .finished import SHOWN, Finished
from .running import Experiment, Settings, main
from .training_runs import BOOKS, LARGE_BATCHES, MOVIELENS, NEWS, RECIPES, Recipe, of_parameters, perform, settings
from .writing import markers, new_picture, paragraphs, save_picture, table

SEEDS = range(3)
# Schemes whose size is a number of parameters. Those with numbers of few bits are compared by bytes (frontier.py).
FEW_BITS = ("coded", "quantized", "product-quantized", "cce", "robe")
COMPRESSED = [name for name in SCHEMES if name != "full" and name not in FEW_BITS]
# Where a run takes many minutes: DHE, the two tables that answer as well elsewhere, and two that the paper has.
ON_LARGE_DATA = ["dhe", "low-rank", "head-and-tail", "hash-embedding", "compositional"]

# The data and backbones of the paper's four panels and one more, by the names they have in the report.
PANELS: dict[str, tuple[DataConfig, str]] = {
    "ML-1M, GMF": (MOVIELENS, "gmf"),
    "ML-1M, MLP": (MOVIELENS, "mlp"),
    "Book-Crossing 5-core, GMF": (BOOKS, "gmf"),
    "Book-Crossing 5-core, MLP": (BOOKS, "mlp"),
    "Globo, GMF": (NEWS, "gmf"),
}
OF_THE_PAPER = [panel for panel in PANELS if panel != "Globo, GMF"]
DENSE, SPARSE = "ML-1M, GMF", "Book-Crossing 5-core, GMF"


def _runs(
    panel: str,
    recipe: Recipe,
    budgets: Sequence[str] = ("1/4",),
    schemes: Sequence[str] = COMPRESSED,
    training: TrainConfig | None = None,
) -> list[Settings]:
    """The full table and the schemes at each budget, all by one recipe."""
    data, backbone = PANELS[panel]
    return [
        settings(data, scheme, budget, seed, recipe=recipe, backbone=backbone, training=training)
        for scheme, budget in [("full", "1/1"), *((scheme, budget) for budget in budgets for scheme in schemes)]
        for seed in SEEDS
    ]


EXPERIMENT = Experiment(
    "figure2",
    [
        *(run for panel in OF_THE_PAPER for run in _runs(panel, "paper")),
        *_runs(DENSE, "fast", ("1/2", "1/4", "1/8")),
        *(run for panel in OF_THE_PAPER[1:] for run in _runs(panel, "fast")),
        *_runs("Globo, GMF", "fast", schemes=ON_LARGE_DATA, training=LARGE_BATCHES),
    ],
    perform,
)


def runs_of(panel: str, scheme: str, budget: str, recipe: Recipe) -> list[Settings]:
    """The runs of one point of the figure, by seed; none if it is not part of it."""
    data, backbone = PANELS[panel]
    wanted = {"scheme": scheme, "budget": of_parameters(budget), "backbone": backbone}
    of_data = data.settings()
    return [
        run
        for run in EXPERIMENT.runs
        if run["data"] == of_data and run["model"] | wanted == run["model"] and run["train"]["recipe"] == recipe
    ]


def _claims(recipe: Recipe) -> list[Claim]:
    def at_a_quarter(panel: str, scheme: str) -> list[Settings]:
        return runs_of(panel, scheme, "1/4", recipe)

    claims = [
        Claim(
            "DHE at 1/4 is as good as the full table",
            at_a_quarter(panel, "dhe"),
            runs_of(panel, "full", "1/1", recipe),
            similar=True,
        )
        for panel in OF_THE_PAPER
    ]
    claims += [
        Claim(f"DHE is above {scheme} at 1/4", at_a_quarter(panel, "dhe"), at_a_quarter(panel, scheme))
        for panel in OF_THE_PAPER
        for scheme in ("hashing-trick", "bloom", "hybrid", "hash-embedding")
    ]
    over, under = at_a_quarter(SPARSE, "compositional"), at_a_quarter(SPARSE, "dhe")
    claims.append(Claim("compositional is above DHE where data is sparse", over, under))
    over, under = at_a_quarter(DENSE, "dhe"), at_a_quarter(DENSE, "compositional")
    claims.append(Claim("DHE is above compositional where data is dense", over, under))
    return claims


CLAIMS = [claim for recipe in RECIPES for claim in _claims(recipe)]


def section(lines: Sequence[Line]) -> str:
    """A table and a picture for each panel. The paper shows curves without numbers; what it says of them is a claim."""
    finished = Finished(lines)
    parts = [
        "The paper's Figure 2 (ML-20M and Amazon Books) has no numbers. Its text: DHE has a similar AUC as the full "
        "table with a quarter of its size in most cases, and is above all hashing schemes but compositional embedding "
        "on sparse data; the hashing trick is last. (`low-rank` and `head-and-tail` are ours.) All schemes of a table "
        "were trained by the same recipe, and compare within it alone."
    ]
    for panel in PANELS:
        for recipe in RECIPES:
            if runs_of(panel, "full", "1/1", recipe):
                parts += _panel(finished, panel, recipe)
    return paragraphs(parts)


def _panel(finished: Finished, panel: str, recipe: Recipe) -> list[str]:
    """Tables (a column for each size and metric), what is to be known of them, and the picture."""
    points = {
        budget: {scheme: runs for scheme in COMPRESSED if (runs := runs_of(panel, scheme, budget, recipe))}
        for budget in ("1/2", "1/4", "1/8")
    }
    points = {budget: own for budget, own in points.items() if own}
    full = runs_of(panel, "full", "1/1", recipe)
    everything = [*full, *(run for own in points.values() for runs in own.values() for run in runs)]
    names = [short.partition(",")[0] for short in SHOWN.values()]
    headings = [f"**{panel}**, {RECIPES[recipe]}, %", *(f"{budget}: {name}" for budget in points for name in names)]
    rows = [["full (1/1)", *finished.cells(full), *[""] * (len(headings) - 1 - len(SHOWN))]]
    for scheme in COMPRESSED:
        own = [points[budget].get(scheme) for budget in points]
        if any(own):
            rows.append([scheme, *(cell for runs in own for cell in (finished.cells(runs) if runs else ["", ""]))])
    popularity = finished.plain(full[:1], "popularity_auc", scale=100, digits=2)
    return [
        table(headings, rows),
        f"Popularity alone: AUC {popularity}. {finished.measured_on(everything)}".strip(),
        _picture(finished, panel, recipe, full, points),
    ]


def _picture(
    finished: Finished,
    panel: str,
    recipe: Recipe,
    full: list[Settings],
    points: dict[str, dict[str, list[Settings]]],
) -> str:
    """Each metric against size; a hollow marker is of runs that stopped at the limit."""
    if not any(finished.values(runs) for own in points.values() for runs in own.values()):
        return ""
    figure = new_picture(width=11)
    sizes = list(reversed(points))
    for axes, (metric, label) in zip(figure.subplots(1, len(SHOWN)), SHOWN.items(), strict=True):
        for scheme in COMPRESSED:
            drawn = [(place, points[size][scheme]) for place, size in enumerate(sizes) if scheme in points[size]]
            drawn = [(place, runs) for place, runs in drawn if finished.values(runs, metric)]
            color, style = look_of(scheme)
            markers(axes, finished, drawn, metric, style=style, color=color, label=scheme)
        if values := finished.values(full, metric):
            axes.axhline(100 * statistics.mean(values), color="black", linestyle="--", label="full table")
        axes.set_xticks(range(len(sizes)), sizes)
        axes.set(xlabel="embedding parameters, of the full table", ylabel=f"test {label}")
        axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    data, backbone = PANELS[panel]
    name = f"figure2-{data.data}-{backbone}-{recipe}"
    return save_picture(figure, name, says=f"Accuracy against model size: {panel}, {RECIPES[recipe]}")


if __name__ == "__main__":
    main(EXPERIMENT)
