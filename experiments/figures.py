"""Figures in the README and the documentation, from the lines of finished runs: `python -m experiments.figures`.

A page has a block `<!-- figures: NAME -->` … `<!-- end -->`, and what stands in it is written here. Pages have no
figure of accuracy outside such blocks (tests/test_figures.py): a number that no line has would soon be wrong.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from . import click_data, clicks, cold_start, deepfm, frontier, online, replacing, sentences, training_runs
from .finished import CAPPED_MARK, INFEASIBLE, NOT_RUN, Finished
from .running import Experiment, Settings
from .writing import table

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
_SHOWN_SIZES = [("full", 128), ("coded", 9), ("coded", 4.5), ("dhe", 9)]
_METRIC_NAMES = {"auc": "AUC", "ndcg@10": "NDCG@10", "recall@20": "Recall@20"}
BLOCK = re.compile(r"(<!-- figures: (?P<name>[a-z-]+) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)


def write() -> None:
    """Write every block of every page anew."""
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = with_figures(before)
        if after != before:
            page.write_text(after, encoding="utf-8")


def with_figures(text: str) -> str:
    """A page with its blocks as the lines have them."""

    def fill(block: re.Match[str]) -> str:
        name = block["name"]
        if name not in BLOCKS:
            raise ValueError(f"no figures are called {name!r}; known are {', '.join(BLOCKS)}")
        return f"{block[1]}\n{BLOCKS[name]()}\n\n{block[4]}"  # Markdown wants room around a table

    return BLOCK.sub(fill, text)


def what_to_expect() -> str:
    """How much of the table is left at few bytes per id, three datasets, all by the fast recipe."""
    finished, rows = _finished(frontier.EXPERIMENT), []
    for name, (_, metrics) in frontier.DATA.items():
        shown = list(metrics)
        points = [frontier.runs_of(name, scheme, size) for scheme, size in _SHOWN_SIZES]
        popularity = finished.mean(points[0], "popularity_auc")
        floor = NOT_RUN if popularity is None else _short(popularity)
        rows.append([f"{name}: {', '.join(_METRIC_NAMES[metric] for metric in shown)}", floor])
        rows[-1] += [_both(finished, runs, shown) for runs in points]
    sizes = [f"`{scheme}`, {size:g} bytes" for scheme, size in _SHOWN_SIZES]
    return _plain_table(["data: metrics", "popularity: AUC", *sizes], rows)


def decision() -> str:
    """For each need what to take, the figure that supports it, and where it fails."""
    finished = _finished(frontier.EXPERIMENT)

    def at(scheme: str, size: float, data: str = "ML-1M") -> str:
        return _both(finished, frontier.runs_of(data, scheme, size), list(frontier.DATA[data][1]))

    def ahead(scheme: str, rival: str, size: float, data: str = "ML-1M") -> str:
        own, others = (frontier.runs_of(data, each, size) for each in (scheme, rival))
        return str(finished.difference(own, others) or NOT_RUN)

    rows = [
        [
            "all ids are known; 37 bytes or more for each",
            "`quantized`",
            f"ML-1M at 64 bytes: {at('quantized', 64)}; the full table: {at('full', 128)}",
            "below 37 bytes rows have 4 bits for a number, and `coded` is ahead; new ids are refused",
        ],
        [
            "all ids are known; 3 to 36 bytes for each",
            "`coded`",
            f"ML-1M at 9 bytes: {at('coded', 9)}; AUC above `dhe`, in points: {ahead('coded', 'dhe', 9)}",
            f"Gowalla at 9 bytes, AUC and Recall@20: {at('coded', 9, 'Gowalla, given split')}; the full table: "
            f"{at('full', 128, 'Gowalla, given split')}. A new id has the vector of another one (`check_bits` tell)",
        ],
        [
            "new ids come, or nothing may grow with their number",
            "`dhe`",
            f"ML-1M at 9 bytes: {at('dhe', 9)}, with no list of ids",
            "`coded` is ahead for known ids (above); of a new id nothing is known but with features",
        ],
        ["new ids whose features are known", "any scheme, with `--item-features`", *_new_items()],
        ["a stream", "`dhe` with `--stream`", *_streams()],
        ["several columns", "a scheme for each column, as `coded`", *_columns()],
        [
            "an answer within a microsecond",
            "`coded`, or any table",
            "[benchmarks](../benchmarks/RESULTS.md): `coded.py`",
            "a network computes each vector: `inference.py` there",
        ],
    ]
    return _plain_table(["you have", "take", "because (AUC, NDCG@10)", "where it fails"], rows)


def _new_items() -> list[str]:
    """Films that nobody has seen: by their features, and by what a table gives to all of them."""
    finished, model = _finished(cold_start.EXPERIMENT), "dhe, features in the encoding"
    runs = [cold_start.run_of(training_runs.MOVIELENS, model, seed) for seed in cold_start.SEEDS]
    by_features, by_mean, content = (
        _figure(finished, runs, f"new items.{way}.auc all")
        for way in (cold_start.FEATURES, cold_start.MEAN_ROW, cold_start.CONTENT)
    )
    return [
        f"new films of ML-1M among all, AUC: {by_features}; all new films alike: {by_mean}",
        f"a model of content alone has {content}; features that say little help little",
    ]


def _streams() -> list[str]:
    """The stream learner against popularity."""
    finished = _finished(online.EXPERIMENT)
    runs = {way: online.runs_of("globo", way) for way in ("dhe", online.POPULARITY, online.GROWING)}
    auc = {way: _figure(finished, own, "auc") for way, own in runs.items()}
    recent = {way: _figure(finished, own, "auc_recent") for way, own in runs.items()}
    films = [_figure(finished, online.runs_of("movietweetings-142k", way), "auc") for way in ("dhe", online.GROWING)]
    return [
        f"Globo, AUC: {auc['dhe']}; popularity so far: {auc[online.POPULARITY]}",
        f"a growing table is ahead against recent items ({recent[online.GROWING]}, `dhe` {recent['dhe']}) and on "
        f"MovieTweetings ({films[1]}, `dhe` {films[0]})",
    ]


def _columns() -> list[str]:
    """Click models: separate schemes against one network for all columns."""
    finished = _finished(clicks.EXPERIMENT)
    data = next(iter(click_data.SOURCES))
    own = {scheme: _both(finished, clicks.runs_of(data, scheme), ("auc",)) for scheme in ("coded", "joint")}
    return [
        f"{click_data.SOURCES[data].title}, AUC: {own['coded']}; one network for all: {own['joint']}",
        "values that are new have no row: `joint` or `dhe` answer for them",
    ]


def by_bytes() -> str:
    """MovieLens-1M with a GMF: every scheme at every size of the frontier, by the fast recipe."""
    finished, name = _finished(frontier.EXPERIMENT), "ML-1M"
    full = _both(finished, frontier.runs_of(name, "full", 128))
    rows = [["`full` (128)", full, *[""] * (len(frontier.BYTES) - 1)]]
    for scheme in frontier.COMPRESSED:
        points = [frontier.runs_of(name, scheme, size) for size in frontier.BYTES]
        rows.append([f"`{scheme}`", *(_both(finished, runs) for runs in points)])
    return _plain_table(["AUC, NDCG@10", *(f"{size:g} bytes" for size in frontier.BYTES)], rows)


def stream() -> str:
    """One pass through each stream: before learning, against items of two kinds, and what is left at the end."""
    finished = _finished(online.EXPERIMENT)
    metrics = ["auc", "auc_recent", "first_clicks.10.auc", "first_window_at_the_end"]
    headings = ["AUC", "whole pass", "against recent items", "an item's first 10 clicks", "first twentieth, at the end"]
    parts = []
    for data, name in online.NAMES.items():
        runs = {way: online.runs_of(data, way) for way in online.WAYS}
        rows = [[way, *(_figure(finished, own, metric) for metric in metrics)] for way, own in runs.items()]
        parts.append(_plain_table([f"{name}: {headings[0]}", *headings[1:]], rows))
    return "\n\n".join(parts)


def replaced_tables() -> str:
    """What becomes of models of two libraries: as they were, with replaced tables, and tuned."""
    finished, rows = _finished(deepfm.EXPERIMENT), []
    name = "DeepFM of torch-rechub on MovieLens-1M: test AUC"
    for scheme in deepfm.SCHEMES:
        for budget in deepfm.BUDGETS:
            ways = [deepfm.AS_TRAINED, *(f"{budget}, {way}" for way in ("distilled", "tuned"))]
            cells = [(deepfm.runs(scheme), f"{way}.auc") for way in ways]
            rows.append([name, f"`{scheme}`, {budget}", *_cells_and_seeds(finished, cells)])
    finished = _finished(sentences.EXPERIMENT)
    name = "all-MiniLM-L6-v2 of transformers on titles of books: neighbours that stay"
    for scheme in sentences.SCHEMES:
        for budget in sentences.BUDGETS:
            cells = [(sentences.runs_of(scheme, budget), f"{way}.recall") for way in sentences.WAYS]
            rows.append([name, f"`{scheme}`, {budget}", "all", *_cells_and_seeds(finished, cells)])
    return _plain_table(["model", "in the place of its tables", "before", "replaced", "tuned", "seeds"], rows)


def default_scheme() -> str:
    """Which scheme keeps most of a trained table at which budget, without tuning: validation AUC and neighbours."""
    finished, rows = _finished(replacing.EXPERIMENT), []
    for data, metric in replacing.SHOWN.items():
        for scheme in replacing.SCHEMES:
            if scheme == "dhe" and data == replacing.TOKENS:  # it would take hours
                continue
            cells = [(replacing.runs_of(data, scheme, budget), metric) for budget in replacing.BUDGETS]
            rows.append([data, f"`{scheme}`", *_cells_and_seeds(finished, cells)])
    return _plain_table(["table", "scheme", *replacing.BUDGETS, "seeds"], rows)


def _cells_and_seeds(finished: Finished, cells: Sequence[tuple[list[Settings], str]]) -> list[str]:
    """A figure for each cell, and how many seeds the least of them has."""
    figures = [_figure(finished, runs, metric) for runs, metric in cells]
    for number, (runs, _) in enumerate(cells):
        if figures[number] == NOT_RUN and any("error" in (finished.line(run) or {}) for run in runs):
            figures[number] = INFEASIBLE
    counts = [len(found) for runs, metric in cells if (found := finished.values(runs, metric))]
    return [*figures, f"{min(counts, default=0)} of {len(cells[0][0])}"]


def several_columns() -> str:
    """Click models: AUC and log loss of each scheme at equal bytes, three datasets."""
    finished, rows = _finished(clicks.EXPERIMENT), []
    for scheme in (clicks.FULL, *clicks.SMALL):
        points = [clicks.runs_of(data, scheme) for data in click_data.SOURCES]
        rows.append([f"`{scheme}`", *(_both(finished, runs, ("auc", clicks.LOG_LOSS)) for runs in points)])
    floors = [clicks.runs_of(data, clicks.FULL)[:1] for data in click_data.SOURCES]
    metrics = ("popularity.auc", "popularity.base_rate_log_loss")
    rows.append(["floor", *(", ".join(_figure(finished, runs, metric) for metric in metrics) for runs in floors)])
    return _plain_table(["AUC, log loss", *(source.title for source in click_data.SOURCES.values())], rows)


def features() -> str:
    """ML-1M: known ids with features in the encoding and without, and every way to answer for new films."""
    finished = _finished(cold_start.EXPERIMENT)
    rows = []
    for model in cold_start.WARM:
        runs = [cold_start.run_of(training_runs.MOVIELENS, model, seed, split="warm") for seed in cold_start.SEEDS]
        rows.append([f"known films: {model}", _both(finished, runs)])
    for model in cold_start.WARM:
        runs = [cold_start.run_of(training_runs.MOVIELENS, model, seed) for seed in cold_start.SEEDS]
        ways = (
            cold_start.FEATURES,
            cold_start.AS_IT_IS,
            cold_start.MEAN_ROW,
            cold_start.POPULARITY,
            cold_start.CONTENT,
        )
        for way in ways:
            metrics = [f"new items.{way}.{metric} all" for metric in ("auc", "ndcg@10")]
            if finished.values(runs, metrics[0]) or model == cold_start.WARM[0]:
                rows.append([f"new films, by {way} ({model})", _both(finished, runs, metrics)])
    return _plain_table(["ML-1M", "AUC, NDCG@10"], rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "features": features,
    "what-to-expect": what_to_expect,
    "decision": decision,
    "by-bytes": by_bytes,
    "stream": stream,
    "replaced-tables": replaced_tables,
    "several-columns": several_columns,
    "default-scheme": default_scheme,
}


def _finished(experiment: Experiment) -> Finished:
    return Finished(experiment.lines())


def _both(finished: Finished, runs: list[Settings], metrics: Sequence[str] = ("auc", "ndcg@10")) -> str:
    figures = [_figure(finished, runs, metric) for metric in metrics]
    if figures[0] == NOT_RUN:
        return INFEASIBLE if any(finished.line(run) for run in runs) else NOT_RUN
    done = len(finished.values(runs, metrics[0]))
    return ", ".join(figures) + (f" ({done} of {len(runs)} seeds)" if done < len(runs) else "")


def _figure(finished: Finished, runs: list[Settings], metric: str) -> str:
    """Mean ± standard deviation over seeds, in four digits."""
    values = finished.values(runs, metric)
    if not values:
        return NOT_RUN
    mark = CAPPED_MARK if finished.capped(runs) else ""
    spread = f" ± {_short(statistics.stdev(values))}" if len(values) > 1 else ""
    return f"{_short(statistics.mean(values))}{mark}{spread}"


def _short(value: float) -> str:
    return f"{value:.4f}".removeprefix("0")


def _plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return table(headings, rows, num_texts=len(headings))


if __name__ == "__main__":
    write()
