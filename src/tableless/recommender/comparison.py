"""Many runs side by side: one JSON line for each finished run, and a summary of the lines."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..data.config import DataConfig
from ..data.splits import Split
from ..embedding.schemes import SCHEMES
from ..files.whole import append_line, read_lines
from ..hints import require_known_name
from .evaluation import METRICS
from .models import find_backbone
from .recipes import is_too_large, train_teacher
from .runs import ModelConfig, build_model, require_budget, train_and_measure, versions, with_seed
from .teachers import Teacher
from .training import TrainConfig

Result = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """Every combination that is to be run. The full table has one size and is run once per backbone and seed."""

    schemes: Sequence[str] = field(
        default_factory=lambda: tuple(SCHEMES),
        metadata={"help": "Separated by commas, or `all`.", "word_for_default": "all"},
    )
    budgets: Sequence[str] = field(default=("1/8", "1/16", "1/32"), metadata={"help": "Separated by commas."})
    backbones: Sequence[str] = field(default=("gmf",), metadata={"help": "gmf, mlp, or both, separated by a comma."})
    seeds: int = field(default=3, metadata={"help": "How many seeds, from --seed on."})

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ValueError(f"seeds is {self.seeds}; it must be at least 1")
        # Wrong names and budgets are refused before data is read, also those that lead to no model: a plan may have no
        # budget, or the full table alone.
        for scheme in self.schemes:
            require_known_name("scheme", scheme, SCHEMES)
        for backbone in self.backbones:
            find_backbone(backbone)
        for budget in self.budgets:
            require_budget(budget)

    def models(self, *, embedding_dim: int) -> list[ModelConfig]:
        """The models of the plan, seeds apart."""
        return [
            ModelConfig(scheme=scheme, budget=budget, backbone=backbone, embedding_dim=embedding_dim)
            for backbone in self.backbones
            for scheme in self.schemes
            for budget in (["1/1"] if scheme == "full" else self.budgets)
        ]


def run_comparison(
    plan: Plan,
    data: DataConfig,
    train_config: TrainConfig,
    split: Split,
    *,
    out: Path,
    embedding_dim: int = ModelConfig.embedding_dim,
    on_run: Callable[[int, int, Mapping[str, Any]], None] | None = None,
) -> list[Result]:
    """Run what is not in `out` yet, adding a line there after each run; returns the lines of the whole plan."""
    finished = {_key(line): line for line in read_lines(out) if _counts_bytes(line)}
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
            "versions": versions(),
        }
        if on_run:
            on_run(index, len(wanted), line)
        if _key(line) not in finished:
            try:
                teacher = _teacher(teachers, model, training, split)
                results_of_run = train_and_measure(data, model, training, split, teacher=teacher)[1]
                line |= {"results": results_of_run}
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


def summarise_runs(lines: Iterable[Result]) -> list[Result]:
    """Means over seeds, largest budgets first and best first within one, with the share of the gap to the full table.

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
        sizes[group] = max(sizes.get(group, 0), row.get("bytes", 0))
    return sorted(rows, key=lambda row: (row["backbone"], -sizes[row["backbone"], row["budget"]], -(row["auc"] or 0)))


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
    sizes = ("bytes", "bytes_per_id", "embedding_parameters", "unanswered")
    return row | {
        **{name: results[0][name] for name in sizes},
        "capped": any(result["capped"] for result in results),
    }


def _counts_bytes(line: Mapping[str, Any]) -> bool:
    """Was the run made since budgets are bytes? Before version 0.2, "1/4" was a quarter of the parameters."""
    return "bytes" in line["results"] if "results" in line else "versions" in line


def _key(line: Mapping[str, Any]) -> str:
    """What makes two runs the same run."""
    return json.dumps([line.get("data"), line.get("model"), line.get("train")], sort_keys=True)
