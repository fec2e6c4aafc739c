"""Many runs, side by side: one JSON line per finished run, a table, and the paper's Figure 2."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.loading import DataConfig
from ..data.splits import Split
from ..embedding.schemes import SCHEMES
from ..files.whole import append_line, read_lines, replacing
from .evaluation import METRICS
from .models import BACKBONES
from .recipes import is_too_large, train_teacher
from .runs import ModelConfig, build_model, run, versions, with_seed
from .teachers import Teacher
from .training import TrainConfig

if TYPE_CHECKING:
    from rich.table import Table

Result = dict[str, Any]

TOP = "ndcg@10"
"""Shown beside the AUC, which flatters: it hardly sees the first ten items, and people hardly see any other."""


@dataclass(frozen=True)
class Plan:
    """Every combination that is to be run. The full table has one size and is run once per backbone and seed."""

    schemes: Sequence[str]
    budgets: Sequence[str]
    backbones: Sequence[str]
    seeds: int

    def __post_init__(self) -> None:
        for kind, names, known in (("scheme", self.schemes, SCHEMES), ("backbone", self.backbones, BACKBONES)):
            for name in names:
                if name not in known:  # else it would look like a budget that is too small, after the other runs
                    raise ValueError(f"no {kind} is called {name!r}; known are {', '.join(known)}")

    def models(self, *, embedding_dim: int) -> list[ModelConfig]:
        """The models of the plan, seeds apart."""
        return [
            ModelConfig(scheme=scheme, budget=budget, backbone=backbone, embedding_dim=embedding_dim)
            for backbone in self.backbones
            for scheme in self.schemes
            for budget in (["1/1"] if scheme == "full" else self.budgets)
        ]


def compare(
    plan: Plan,
    data: DataConfig,
    train_config: TrainConfig,
    split: Split,
    *,
    out: Path,
    embedding_dim: int = 32,
    on_run: Callable[[int, int, Mapping[str, Any]], None] | None = None,
) -> list[Result]:
    """Run what is not in `out` yet, adding a line there after each run; returns the lines of the whole plan."""
    finished = {_key(line): line for line in read_lines(out)}
    wanted = [
        (model, with_seed(train_config, train_config.seed + number))
        for number in range(plan.seeds)
        for model in plan.models(embedding_dim=embedding_dim)
    ]
    results = []
    teachers: dict[tuple[str, int], Teacher] = {}
    for index, (model, training) in enumerate(wanted):
        # Where the data was found is this machine's business, and no part of what was run.
        line: Result = {
            "data": replace(data, data_dir=None).settings(),
            "model": asdict(model),
            "train": asdict(training),
        }
        if on_run:
            on_run(index, len(wanted), line)
        if _key(line) not in finished:
            try:
                teacher = _teacher(teachers, model, training, split)
                results_of_run = run(data, model, training, split, teacher=teacher)[1]
                line |= {"versions": versions(), "results": results_of_run}
            except ValueError as error:  # a budget too small for this scheme is a finding, not a reason to stop
                line |= {"error": str(error)}
            append_line(out, line)
            finished[_key(line)] = line
        results.append(finished[_key(line)])
    return results


def _teacher(
    known: dict[tuple[str, int], Teacher], model: ModelConfig, training: TrainConfig, split: Split
) -> Teacher | None:
    """The table that the models of one backbone and seed learn from: trained for the first, the same for all."""
    if training.recipe != "fast":
        return None
    key = model.backbone, training.seed
    if key not in known:
        example = build_model(replace(model, scheme="full"), split, seed=training.seed)
        if is_too_large(example, split):
            return None
        known[key] = train_teacher(example, split, training)
    return known[key]


def summarise(lines: Iterable[Result]) -> list[Result]:
    """Means over seeds, best first within a backbone and size, with the share of the gap to the full table.

    Where a scheme can't answer for new ids, all are compared on the known ones.
    """
    groups: dict[tuple[str, str, str], list[Result]] = {}
    lines = list(lines)
    for line in lines:
        model = line["model"]
        groups.setdefault((model["backbone"], model["budget"], model["scheme"]), []).append(line)
    closed = next((line["results"] for line in lines if line.get("results", {}).get("unanswered")), None)
    rows = [_row(*key, members, closed) for key, members in groups.items()]
    full = {row["backbone"]: row["auc"] for row in rows if row["scheme"] == "full" and row["auc"] is not None}
    for row in rows:
        top = full.get(row["backbone"])
        if row["auc"] is not None and top is not None and top > row["popularity_auc"]:
            row["gap_closed"] = (row["auc"] - row["popularity_auc"]) / (top - row["popularity_auc"])
    sizes: dict[tuple[str, str], int] = {}  # schemes of one budget stay together, though they use it up more or less
    for row in rows:
        group = row["backbone"], row["budget"]
        sizes[group] = max(sizes.get(group, 0), row.get("embedding_parameters", 0))
    return sorted(rows, key=lambda row: (row["backbone"], -sizes[row["backbone"], row["budget"]], -(row["auc"] or 0)))


def render_table(rows: Sequence[Result]) -> Table:
    """The summary for a terminal."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption="\n".join(_remarks(rows)), caption_justify="left")
    for name in ("", "scheme", "size", "parameters", "test AUC", "se", METRICS[TOP].label, "gap", "s"):
        table.add_column(name, justify="left" if name in ("", "scheme") else "right", no_wrap=True)
    for row in rows:
        if row["auc"] is None:
            table.add_row(row["backbone"], row["scheme"], row["budget"], "", "too small")
            continue
        spread = f" ±{_short(row['auc_sd'])}" if row["auc_sd"] is not None else ""
        table.add_row(
            row["backbone"],
            row["scheme"],
            row["budget"],
            f"{row['embedding_parameters']:,}",
            f"{_short(row['auc'])}{spread}{'†' if row['capped'] else ''}",
            _short(row["auc_se"]),
            _short(row[TOP]),
            f"{row['gap_closed']:.0%}" if "gap_closed" in row else "",
            f"{row['seconds']:.0f}",
        )
    return table


def _remarks(rows: Sequence[Result]) -> Iterator[str]:
    """What stands below the table."""
    done = [row for row in rows if row["auc"] is not None]
    if done:
        yield f"Popularity alone: AUC {_short(done[0]['popularity_auc'])}, " + (
            f"{METRICS[TOP].label} {_short(done[0]['popularity'][TOP])}, for the same users and items."
        )
        if "best_possible_auc" in done[0]:
            yield f"Best possible in this world: AUC {_short(done[0]['best_possible_auc'])}."
        counts = sorted({row["evaluated"] for row in done})
        users = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
        yield f"Measured on {users} of {done[0]['held_out']:,} users. se: standard error over users; ±: over seeds."
        yield "Gap: share of the way from popularity to the full table."
    if any(row["auc_items"] for row in done):
        yield f"AUC against {done[0]['auc_items']:,} items drawn for each user; {METRICS[TOP].label} over all items."
    if any(row["capped"] for row in done):
        yield "†: ended at the limit of epochs, not by itself; more epochs may be better."


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}".removeprefix("0")


def save_picture(rows: Sequence[Result], path: Path) -> None:
    """AUC, and below it the top of the ranking, against model size: a line per scheme, a column per backbone."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("the picture is drawn by matplotlib: pip install 'tableless[cli]'") from None
    rows = [row for row in rows if row["auc"] is not None]
    backbones = sorted({row["backbone"] for row in rows})
    schemes = sorted({row["scheme"] for row in rows} - {"full"})
    figure = Figure(figsize=(5.2 * len(backbones) + 1.6, 7.6), layout="constrained")
    panels = figure.subplots(2, len(backbones), squeeze=False, sharex="col")
    for column, backbone in enumerate(backbones):
        own = [row for row in rows if row["backbone"] == backbone]
        for panel, name in zip(panels[:, column], ("auc", TOP), strict=True):
            for number, scheme in enumerate(schemes):
                _draw_scheme(panel, number, [row for row in own if row["scheme"] == scheme], name)
            for row in (row for row in own if row["scheme"] == "full"):
                panel.axhline(row[name], color="black", linestyle="--", label="full table")
            panel.axhline(own[0]["popularity"][name], color="grey", linestyle=":", label="popularity")
            if "best_possible" in own[0]:
                panel.axhline(own[0]["best_possible"][name], color="green", linestyle="-.", label="best possible")
            panel.set(ylabel=f"test {METRICS[name].label}", xscale="log")
            _mark_sizes(panel, own)
            panel.spines[["top", "right"]].set_visible(False)
        panels[0, column].set_title(backbone.upper())
        panels[1, column].set_xlabel("embedding parameters")
    panels[0, -1].legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part:
        figure.savefig(part, dpi=130, format="png")


def _mark_sizes(panel: Any, rows: Sequence[Result]) -> None:
    """A mark for each budget, at the most that a scheme makes of it; a single size stands in the middle."""
    sizes: dict[str, int] = {}
    for row in rows:
        if row["scheme"] != "full":
            sizes[row["budget"]] = max(sizes.get(row["budget"], 0), row["embedding_parameters"])
    if sizes:
        panel.set_xlim(min(sizes.values()) / 1.5, max(sizes.values()) * 1.5)
        panel.set_xticks(list(sizes.values()), [f"{budget}\n{size:,}" for budget, size in sizes.items()])
        panel.minorticks_off()


def _draw_scheme(panel: Any, number: int, rows: Sequence[Result], name: str) -> None:
    """One line; a hollow marker is a run that ended at its limit of epochs."""
    rows = sorted(rows, key=lambda row: row["embedding_parameters"])
    color, marker = f"C{number}", "osD^v<>p"[number % 8]
    sizes, values = [row["embedding_parameters"] for row in rows], [row[name] for row in rows]
    spread = [row[f"{name}_sd"] or 0 for row in rows]
    width = 2.4 if rows and rows[0]["scheme"] == "dhe" else 1.2
    panel.errorbar(sizes, values, yerr=spread, color=color, linewidth=width, capsize=3)
    for capped, face in ((False, color), (True, "white")):
        points = [(row["embedding_parameters"], row[name]) for row in rows if row["capped"] is capped]
        if points:
            label = rows[0]["scheme"] + (" (ended at its limit)" if capped else "")
            panel.plot(*zip(*points, strict=True), marker, color=color, markerfacecolor=face, label=label)


def _row(backbone: str, budget: str, scheme: str, members: list[Result], closed: Result | None) -> Result:
    row: Result = {"backbone": backbone, "budget": budget, "scheme": scheme, "seeds": len(members), "auc": None}
    results = [line["results"] for line in members if "results" in line]
    if not results:
        return row | {"error": members[0]["error"]}
    measured = [result.get("known", result) if closed else result for result in results]
    for name in METRICS:
        if all(name in result for result in measured):
            values = [result[name] for result in measured]
            row[name] = statistics.mean(values)
            row[f"{name}_sd"] = statistics.stdev(values) if len(values) > 1 else None
            errors = [result[f"{name}_se"] for result in measured if f"{name}_se" in result]
            row[f"{name}_se"] = statistics.mean(errors) if errors else None
    row |= {name: statistics.mean(result[name] for result in results) for name in ("validation_auc", "seconds")}
    first, floor = measured[0], closed or results[0]
    row |= {name: first.get(name) for name in ("evaluated", "held_out", "auc_items")}
    row |= {name: floor[name] for name in ("popularity", "popularity_auc", "best_possible", "best_possible_auc")
            if name in floor}  # fmt: skip
    return row | {
        "embedding_parameters": results[0]["embedding_parameters"],
        "unanswered": results[0]["unanswered"],
        "capped": any(result["capped"] for result in results),
    }


def _key(line: Mapping[str, Any]) -> str:
    """What makes two runs the same run."""
    return json.dumps([line.get("data"), line.get("model"), line.get("train")], sort_keys=True)
