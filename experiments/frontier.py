"""The frontier: accuracy against bytes per id, every scheme and every rival, all by the fast recipe.

All that is needed to answer for a raw id counts. The full table in float32 is the teacher of them all.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tableless import SCHEMES
from tableless.data.config import DataConfig
from tableless.files.whole import Line

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
        "divided by their number. GMF, 32 dimensions: the full table takes 128 bytes in float32, and a map from ids to "
        "rows beside that. A scheme may use less than it is allowed; “–”: too small for it."
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
    if not any(finished.values(runs_of(name, scheme, size)) for scheme in COMPRESSED for size in BYTES):
        return ""
    figure = new_picture(width=11)
    for axes, (metric, label) in zip(figure.subplots(1, len(metrics)), metrics.items(), strict=True):
        for number, scheme in enumerate(COMPRESSED):
            points = [(size, runs_of(name, scheme, size)) for size in BYTES]
            drawn = [(size, runs) for size, runs in points if finished.values(runs, metric)]
            markers(axes, finished, drawn, metric, style="osD^v<>p"[number % 8], color=f"C{number % 10}", label=scheme)
        if values := finished.values(runs_of(name, "full", 128), metric):
            axes.axhline(100 * statistics.mean(values), color="black", linestyle="--", label="full (128 bytes)")
        axes.set_xscale("log", base=2)
        axes.set_xticks(BYTES, [f"{size:g}" for size in BYTES])
        axes.set(xlabel="bytes per id (logarithmic)", ylabel=f"test {label}")
        axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    figure.suptitle(f"{name}: how much of the table is left at how many bytes")
    picture = f"frontier-{DATA[name][0].data}"
    return save_picture(figure, picture, says=f"Accuracy against bytes per id: {name}")


if __name__ == "__main__":
    main(EXPERIMENT)
