"""Many runs, side by side: one JSON line per finished run, a table, and the paper's Figure 2."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..embedding.whole_files import replacing
from .lines import append_line, read_lines
from .runs import DataConfig, ModelConfig, run, versions, with_seed
from .splits import Split
from .training import TrainConfig

if TYPE_CHECKING:
    from rich.table import Table

Result = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """Every combination that is to be run. The full table has one size and is run once per backbone and seed."""

    schemes: Sequence[str]
    budgets: Sequence[str]
    backbones: Sequence[str]
    seeds: int

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
                line |= {"versions": versions(), "results": run(data, model, training, split)[1]}
            except ValueError as error:  # a budget too small for this scheme is a finding, not a reason to stop
                line |= {"error": str(error)}
            append_line(out, line)
            finished[_key(line)] = line
        results.append(finished[_key(line)])
    return results


def summarise(lines: Iterable[Result]) -> list[Result]:
    """Means over seeds, best first within a backbone and budget, with the share of the gap to the full table."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for line in lines:
        model = line["model"]
        groups.setdefault((model["backbone"], model["budget"], model["scheme"]), []).append(line)
    rows = [_row(*key, members) for key, members in groups.items()]
    full = {row["backbone"]: row["auc"] for row in rows if row["scheme"] == "full" and row["auc"] is not None}
    for row in rows:
        top = full.get(row["backbone"])
        if row["auc"] is not None and top is not None and top > row["popularity_auc"]:
            row["gap_closed"] = (row["auc"] - row["popularity_auc"]) / (top - row["popularity_auc"])
    return sorted(rows, key=lambda row: (row["backbone"], -_size(row["budget"]), -(row["auc"] or 0.0)))


def render_table(rows: Sequence[Result]) -> Table:
    """The summary for a terminal."""
    from rich import box
    from rich.table import Table

    floor = next((row["popularity_auc"] for row in rows if row["auc"] is not None), None)
    best = next((row["best_possible_auc"] for row in rows if row.get("best_possible_auc")), None)
    caption = ("" if floor is None else f"Popularity alone: {floor:.4f}. ") + (
        "" if best is None else f"Best possible in this world: {best:.4f}. "
    )
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        caption=caption + "Gap: share of the way from popularity to the full table.",
        caption_justify="left",
    )
    for name in ("", "scheme", "size", "parameters", "test AUC", "HR@10", "gap", "s"):
        table.add_column(name, justify="left" if name in ("", "scheme") else "right", no_wrap=True)
    for row in rows:
        if row["auc"] is None:
            table.add_row(row["backbone"], row["scheme"], row["budget"], "", "too small", "", "", "")
            continue
        spread = f" ±{row['auc_sd']:.4f}" if row["auc_sd"] is not None else ""
        table.add_row(
            row["backbone"],
            row["scheme"],
            row["budget"],
            f"{row['embedding_parameters']:,}",
            f"{row['auc']:.4f}{spread}",
            f"{row['hr@10']:.4f}",
            f"{row['gap_closed']:.0%}" if "gap_closed" in row else "",
            f"{row['seconds']:.0f}",
        )
    return table


def save_picture(rows: Sequence[Result], path: Path) -> None:
    """AUC against model size, a line per scheme, a panel per backbone."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("the picture is drawn by matplotlib: pip install 'tableless[cli]'") from None
    rows = [row for row in rows if row["auc"] is not None]
    backbones = sorted({row["backbone"] for row in rows})
    schemes = sorted({row["scheme"] for row in rows} - {"full"})
    figure = Figure(figsize=(5.2 * len(backbones) + 1.6, 4.4), layout="constrained")
    panels = figure.subplots(1, len(backbones), squeeze=False)[0]
    sizes = sorted({row["budget"] for row in rows if row["scheme"] != "full"}, key=_size)
    for panel, backbone in zip(panels, backbones, strict=True):
        own = [row for row in rows if row["backbone"] == backbone]
        for number, scheme in enumerate(schemes):
            points = sorted((row for row in own if row["scheme"] == scheme), key=lambda row: _size(row["budget"]))
            panel.errorbar(
                [sizes.index(row["budget"]) for row in points],
                [row["auc"] for row in points],
                yerr=[row["auc_sd"] or 0 for row in points],
                marker="osD^v<>p"[number % 8],
                linewidth=2.4 if scheme == "dhe" else 1.2,
                capsize=3,
                label=scheme,
            )
        for row in (row for row in own if row["scheme"] == "full"):
            panel.axhline(row["auc"], color="black", linestyle="--", label="full table")
        panel.axhline(own[0]["popularity_auc"], color="grey", linestyle=":", label="popularity")
        if own[0].get("best_possible_auc"):
            panel.axhline(own[0]["best_possible_auc"], color="green", linestyle="-.", label="best possible")
        panel.set_xticks(range(len(sizes)), sizes)
        panel.set(title=backbone.upper(), xlabel="embedding parameters, of the full table", ylabel="test AUC")
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part:
        figure.savefig(part, dpi=130, format="png")


def _row(backbone: str, budget: str, scheme: str, members: list[Result]) -> Result:
    row: Result = {"backbone": backbone, "budget": budget, "scheme": scheme, "seeds": len(members), "auc": None}
    results = [line["results"] for line in members if "results" in line]
    if not results:
        return row | {"error": members[0]["error"]}
    names = ("auc", "validation_auc", "hr@10", "ndcg@10", "seconds", "popularity_auc")
    row |= {name: statistics.mean(result[name] for result in results) for name in names}
    row |= {
        "auc_sd": statistics.stdev(result["auc"] for result in results) if len(results) > 1 else None,
        "embedding_parameters": results[0]["embedding_parameters"],
        "unanswered": results[0]["unanswered"],
    }
    if "best_possible_auc" in results[0]:
        row["best_possible_auc"] = results[0]["best_possible_auc"]
    return row


def _size(budget: str) -> float:
    above, _, below = budget.partition("/")
    try:
        return float(above) / float(below or 1)
    except ValueError:
        return 0.0


def _key(line: Mapping[str, Any]) -> str:
    """What makes two runs the same run."""
    return json.dumps([line.get("data"), line.get("model"), line.get("train")], sort_keys=True)
