"""The frontier: accuracy against bytes per id, every scheme and every rival, all by the fast recipe.

All that is needed to answer for a raw id counts. The full table in float32 is the teacher of them all.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tableless import SCHEMES
from tableless.data.config import DataConfig
from tableless.files.whole import Line
from tableless.recommender.comparison_report import look_of

from .finished import Finished
from .running import Experiment, Settings, main
from .training_runs import BOOKS, MOVIELENS, PLACES, perform, settings
from .writing import markers, new_picture, paragraphs, save_picture, table

SEEDS = range(3)
COMPRESSED = [name for name in SCHEMES if name != "full"]
BYTES = (2, 4.5, 9, 20, 64)
# The two sizes that a reader looks at first, and the scheme that is new, come first.
ORDER = [*((scheme, size) for size in (9, 4.5) for scheme in ("coded", "dhe", "quantized", "product-quantized"))]
ORDER += [(scheme, size) for size in (9, 4.5, 20, 2, 64) for scheme in COMPRESSED if (scheme, size) not in ORDER]

DATA: dict[str, tuple[DataConfig, dict[str, str]]] = {
    "ML-1M": (MOVIELENS, {"auc": "AUC, %", "ndcg@10": "NDCG@10, %"}),
    "Book-Crossing 5-core": (BOOKS, {"auc": "AUC, %", "ndcg@10": "NDCG@10, %"}),
    "Gowalla, given split": (PLACES, {"auc": "AUC, %", "recall@20": "Recall@20, %"}),
}


def runs_of(name: str, scheme: str, size: float) -> list[Settings]:
    """The runs of one scheme at so many bytes per id, by seed; the full table has one size."""
    budget = "1/1" if scheme == "full" else f"{size:g}B/id"
    return [settings(DATA[name][0], scheme, budget, seed, recipe="fast") for seed in SEEDS]


EXPERIMENT = Experiment(
    "frontier",
    [
        *(run for name in DATA for run in runs_of(name, "full", 128)),
        *(run for scheme, size in ORDER for name in DATA for run in runs_of(name, scheme, size)),
    ],
    perform,
)


def section(lines: Sequence[Line]) -> str:
    """For each dataset a table of each metric, bytes per id across, and a picture."""
    finished = Finished(lines)
    parts = [
        "Bytes per id are those of everything that is stored to answer for raw ids, of users and items together, "
        "divided by their number. The AUC decided which epochs were kept (`--select auc`). GMF, 32 dimensions: the "
        "full table takes 128 bytes in float32, and a map from ids to rows beside that. A scheme may use less than it "
        "is allowed; “–”: too small for it."
    ]
    for name, (_, metrics) in DATA.items():
        full = runs_of(name, "full", 128)
        for metric, label in metrics.items():
            headings = [f"**{name}**: {label}", *(f"{size:g}" for size in BYTES)]
            rows = [["full (128)", finished.cell(full, metric), *[""] * (len(BYTES) - 1)]]
            rows += [
                [scheme, *(finished.cell(runs_of(name, scheme, size), metric) for size in BYTES)]
                for scheme in COMPRESSED
            ]
            parts.append(table(headings, rows))
        everything = [run for scheme in COMPRESSED for size in BYTES for run in runs_of(name, scheme, size)]
        parts += [finished.measured_on([*full, *everything]), _picture(finished, name, metrics)]
    return paragraphs(parts)


def _picture(finished: Finished, name: str, metrics: dict[str, str]) -> str:
    """Each metric against bytes per id, on a logarithmic axis."""
    top = list(metrics)[-1]
    order = _best_first(finished, name, top)
    if not order:
        return ""
    figure = new_picture(width=11, height=4.6)
    for axes, (metric, label) in zip(figure.subplots(1, len(metrics)), metrics.items(), strict=True):
        if values := finished.values(runs_of(name, "full", 128), metric):
            axes.axhline(100 * statistics.mean(values), color="black", linestyle="--", label="full (128 bytes)")
        for scheme in order:
            points = [(size, runs_of(name, scheme, size)) for size in BYTES]
            drawn = [(size, runs) for size, runs in points if finished.values(runs, metric)]
            color, style = look_of(scheme)
            markers(axes, finished, drawn, metric, style=style, color=color, label=scheme)
        axes.set_xscale("log", base=2)
        axes.set_xticks(BYTES, [f"{size:g}" for size in BYTES])
        axes.set(xlabel="bytes per id (logarithmic)", ylabel=f"test {label}")
        axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, title="best at the top first")
    finding = _finding(finished, name, top)
    figure.suptitle(finding)
    return save_picture(figure, f"frontier-{DATA[name][0].data}", says=finding)


def _best_first(finished: Finished, name: str, metric: str) -> list[str]:
    """The schemes that have a figure, the one with the best of any size first."""
    best = {
        scheme: max(means)
        for scheme in COMPRESSED
        if (means := [mean for size in BYTES if (mean := finished.mean(runs_of(name, scheme, size), metric))])
    }
    return sorted(best, key=lambda scheme: -best[scheme])


def _finding(finished: Finished, name: str, metric: str, size: float = 9) -> str:
    """What the picture shows, in one sentence: the best scheme at few bytes. Schemes with one seed say nothing yet."""
    own = {scheme: runs_of(name, scheme, size) for scheme in COMPRESSED}
    means = {
        scheme: statistics.mean(values)
        for scheme, runs in own.items()
        if len(values := finished.values(runs, metric)) > 1
    }
    full = finished.mean(runs_of(name, "full", 128), metric)
    if not (means and full):
        return f"{name}: what is left of the table at few bytes per id"
    best = max(means, key=lambda scheme: means[scheme])
    label = DATA[name][1][metric].partition(",")[0]
    return f"{name}: at {size:g} bytes per id, {best} keeps {means[best] / full:.0%} of the table's {label}"


if __name__ == "__main__":
    main(EXPERIMENT)
