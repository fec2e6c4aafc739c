"""`tableless.compare`: a comparison of schemes on data in any form."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..data.config import DataConfig, RowRules
from ..data.in_memory import Data, data_configs, temporary_folder
from ..embedding.budget import Budget
from ..embedding.schemes import SCHEMES
from .comparison import Plan, run_comparison, summarise_runs
from .comparison_report import save_comparison_picture
from .progress import Listener, Progress, load_and_describe
from .runs import ModelConfig
from .training import TrainConfig

_PathName = str | os.PathLike[str]


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


def _several(name: str, values: Sequence[Any]) -> list[str]:
    if isinstance(values, (str, int)):
        raise ValueError(f"{name} is {values!r}; give a list, such as [{values!r}]")
    return [str(value) for value in values]
