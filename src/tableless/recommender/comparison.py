"""Many runs side by side: `tableless.compare`, a plan of what to run, and one JSON line for each finished run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..data.config import DataConfig, RowRules
from ..data.in_memory import Data, data_configs, temporary_folder
from ..data.splits import Split
from ..embedding.budget import Budget
from ..embedding.schemes import SCHEMES
from ..files.whole import append_line, read_lines
from ..hints import require_known_name
from .comparison_report import Result, save_comparison_picture, summarise_runs
from .models import find_backbone
from .progress import Listener, Progress, load_and_describe
from .recipes import is_too_large, train_teacher
from .runs import ModelConfig, build_model, require_budget, train_and_measure, versions, with_seed
from .teachers import Teacher
from .training import TrainConfig

_PathName = str | os.PathLike[str]


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


def compare(
    data: Data,
    *,
    schemes: Sequence[str] | None = None,
    budgets: Sequence[Budget] = Plan.budgets,
    backbones: Sequence[str] = Plan.backbones,
    seeds: int = Plan.seeds,
    embedding_dim: int = ModelConfig.embedding_dim,
    config: TrainConfig | None = None,
    test: Data | None = None,
    split: str = DataConfig.split,
    core: int = DataConfig.core,
    user_col: str | None = DataConfig.user_col,
    item_col: str | None = DataConfig.item_col,
    time_col: str | None = DataConfig.time_col,
    data_dir: _PathName | None = DataConfig.data_dir,
    cache_dir: _PathName | None = None,
    drop_missing: bool = DataConfig.drop_missing,
    rating_col: str | None = DataConfig.rating_col,
    min_rating: float | None = DataConfig.min_rating,
    date_format: str | None = DataConfig.date_format,
    out: _PathName | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> list[dict[str, Any]]:
    """Train every scheme at every budget, as `tableless compare` does.

    Args:
        data: The interactions, in any form that `tableless.train` takes.
        schemes: Names of `tableless.SCHEMES`; all of them unless given.
        budgets: Sizes, each in any form that `tableless.train` takes. The full table has one size of its own.
        backbones: `"gmf"`, `"mlp"` or both.
        seeds: How many seeds each is trained from: that of `config`, and those after it.
        embedding_dim: Dimensions of an embedding.
        config: How to train; `TrainConfig()` unless given.
        test: The test actions. Everything in `data` is then for training.
        split: Without `test`, which actions are the test: as in `tableless.train`.
        core: First keep only users and items with at least this many actions.
        user_col: The column of the user ids; guessed from common names.
        item_col: The column of the item ids; guessed from common names.
        time_col: The column of the times; guessed from common names. `""`: there are none.
        data_dir: Where known datasets are looked for, and downloaded to.
        cache_dir: Keep prepared files here, for the next time. Not for data in memory.
        drop_missing: Drop rows without a user or an item (or a time or rating that is read); else they are refused.
        rating_col: The column of the ratings for `min_rating`; guessed from common names.
        min_rating: Only rows with at least this rating count.
        date_format: How dates are written: `"dmy"`, `"mdy"`, or a format such as `"%m/%d/%Y %H:%M"`.
        out: A directory for the lines (`results.jsonl`) and the picture (`auc-by-size.png`: against bytes per id).
            Runs that are in it already are not repeated, unless they are from before version 0.2, when a share was one
            of the parameters. Without it nothing is kept.
        progress: Is called with a `Progress` when a run begins.

    Returns:
        A dict for each combination, with means over seeds; largest budgets first, and best first within one. `bytes`
            are those of all embeddings, `bytes_per_id` those for each known user and item. A scheme that has no model
            so small has `auc` None, and the reason as `error`.

    Raises:
        ValueError: An argument or the data cannot be used; the message says what to do.

    Example:
        ```python
        import tableless

        rows = tableless.compare(
            "world:users=200,items=120,actions=6000",
            schemes=["full", "low-rank"],
            budgets=["1/16"],
            seeds=1,
            config=tableless.TrainConfig(epochs=2),
        )
        print([(row["scheme"], row["bytes_per_id"], row["auc"]) for row in rows])
        ```
    """
    plan = Plan(
        schemes=list(SCHEMES) if schemes is None else _several("schemes", schemes),
        budgets=_several("budgets", budgets),
        backbones=_several("backbones", backbones),
        seeds=seeds,
    )
    listener = Listener(progress or (lambda event: None))
    with ExitStack() as stack:
        folder = temporary_folder(stack)
        read, recorded = data_configs(
            data,
            folder,
            data_dir=data_dir,
            cache_dir=cache_dir,
            columns=(user_col, item_col, time_col),
            rules=RowRules(drop_missing, rating_col, min_rating, date_format),
            test=test,
            split=split,
            core=core,
        )
        lines = run_comparison(
            plan,
            recorded,
            config or TrainConfig(),
            load_and_describe(read, cache_dir=cache_dir, listener=listener),
            out=(folder if out is None else Path(out)) / "results.jsonl",
            embedding_dim=embedding_dim,
            on_run=listener.on_run,
        )
    rows = summarise_runs(lines)
    if out is not None:
        save_comparison_picture(rows, Path(out) / "auc-by-size.png")
    return rows


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


def _several(name: str, values: Sequence[Any]) -> list[str]:
    if isinstance(values, (str, int)):
        raise ValueError(f"{name} is {values!r}; give a list, such as [{values!r}]")
    return [str(value) for value in values]


def _counts_bytes(line: Mapping[str, Any]) -> bool:
    """Was the run made since budgets are bytes? Before version 0.2, "1/4" was a quarter of the parameters."""
    return "bytes" in line["results"] if "results" in line else "versions" in line


def _key(line: Mapping[str, Any]) -> str:
    """What makes two runs the same run."""
    return json.dumps([line.get("data"), line.get("model"), line.get("train")], sort_keys=True)
