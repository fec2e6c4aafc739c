"""One run from data to results: what `train` does once and `compare` does for every combination."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from .. import __version__
from ..embedding.arguments import require_kinds
from ..embedding.deep_hash import PAPER_NETWORK
from ..embedding.scheme import Budget, EmbeddingScheme, resolve_budget
from ..embedding.schemes import SCHEMES
from ..embedding.tables.frequent_rows import FrequentRows
from .checkpoint import RunDirectory, describe_recommender
from .datasets import load_interactions
from .distributed import Processes
from .evaluation import Metrics, evaluate, model_scores, popularity_scores
from .interactions import Interactions
from .lists import write_list
from .models import BACKBONES, Recommender
from .recipes import train_fast
from .splits import Split, split_global_time, split_leave_one_out
from .training import EpochReport, TrainConfig, train
from .world import World

EXACT_SECONDS = 20
"""An evaluation over all users and items that would take longer than about this is done on a sample of the users."""


@dataclass(frozen=True)
class DataConfig:
    """Which interactions, and how they are split."""

    data: str
    data_dir: str | None = None
    user_col: str | None = None
    item_col: str | None = None
    time_col: str | None = None
    core: int = 0
    split: Literal["leave-one-out", "global-time"] = "leave-one-out"
    split_seed: int = 0


def recorded_data(config: Mapping[str, Any]) -> DataConfig:
    """What the config of a run says about the data that it was trained on."""
    data = config.get("data")
    names = {each.name for each in fields(DataConfig)}
    if not isinstance(data, dict) or not {"data"} <= data.keys() <= names:
        raise ValueError("the run's config.json does not say which data it was trained on (`data`)")
    require_kinds(DataConfig, data)
    return DataConfig(**data)


@dataclass(frozen=True)
class ModelConfig:
    """Which model; the paper's values as defaults."""

    scheme: str = "dhe"
    budget: str = "1/4"
    backbone: str = "gmf"
    embedding_dim: int = 32
    options: dict[str, Any] = field(default_factory=dict)  # further arguments of the scheme's from_budget


def load_split(
    config: DataConfig, *, cache_dir: Path | str | None = None, report: Callable[..., None] | None = None
) -> Split:
    """The data, ready to train on."""
    interactions = load_interactions(
        config.data,
        data_dir=config.data_dir,
        user_col=config.user_col,
        item_col=config.item_col,
        time_col=config.time_col,
        core=config.core,
        cache_dir=cache_dir,
        report=report,
    )
    if config.split == "global-time":
        return split_global_time(interactions)
    return split_leave_one_out(interactions, seed=config.split_seed)


def build_model(config: ModelConfig, split: Split, *, seed: int) -> Recommender:
    """A recommender of the given kind and budget for the users and items of a split."""
    if config.scheme not in SCHEMES:
        raise ValueError(f"no scheme is called {config.scheme!r}; known are {', '.join(SCHEMES)}")
    if config.backbone not in BACKBONES:
        raise ValueError(f"no backbone is called {config.backbone!r}; known are {', '.join(BACKBONES)}")
    train, vocab = split.train, split.num_known_users + split.num_known_items
    budget: Budget = "1/1" if config.scheme == "full" else config.budget
    total = resolve_budget(budget, embedding_dim=config.embedding_dim, vocab_size=vocab)
    # Users and items share the budget as they would share the memory of full tables.
    users = size_scheme(config, total * split.num_known_users // vocab, split.num_known_users, seed=2 * seed)
    items = size_scheme(config, total * split.num_known_items // vocab, split.num_known_items, seed=2 * seed + 1)
    _give_rows_to_frequent(users, train.user_ids, np.diff(train.starts))
    _give_rows_to_frequent(items, train.item_ids, np.bincount(train.items, minlength=train.num_items))
    return BACKBONES[config.backbone](users=users, items=items, seed=seed)


def run(
    data: DataConfig,
    model_config: ModelConfig,
    train_config: TrainConfig,
    split: Split,
    *,
    teacher: Recommender | None = None,
    built: Recommender | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    device: str = "auto",
    processes: Processes = Processes(),  # noqa: B008 - frozen
    on_note: Callable[[str], None] | None = None,
    on_batch: Callable[[int, int, int, float], None] | None = None,
    on_epoch: Callable[[EpochReport], None] | None = None,
) -> tuple[Recommender, dict[str, Any]]:
    """Train and measure one model; with `out`, leave a run directory. Returns the model and its results.

    `teacher` spares the fast recipe training its own table. `built` is a model that somebody has built already, of
    parts that no config describes (side features); `model_config` is then only written down.
    """
    start = time.perf_counter()
    if train_config.recipe == "paper" and getattr(SCHEMES.get(model_config.scheme), "learns_from_table", False):
        model_config = replace(model_config, options={**PAPER_NETWORK, **model_config.options})
    model = build_model(model_config, split, seed=train_config.seed) if built is None else built
    model = model.to(choose_device(device))
    kinds = {"user": split.train.user_kind, "item": split.train.item_kind}
    config = describe_run(data, model, model_config, train_config, kinds)
    journal = None if out is None else RunDirectory(out, config, resume=resume, writes=processes.is_first)
    settings: dict[str, Any] = {"journal": journal, "processes": processes}
    settings |= {"on_batch": on_batch, "on_epoch": on_epoch}
    if train_config.recipe == "fast" and model.users.learns_from_table:
        reports = train_fast(model, split, train_config, teacher=teacher, on_note=on_note, **settings)
    else:
        reports = train(model, split, train_config, **settings)
    seconds = time.perf_counter() - start
    results = measure(model, split) | popularity_and_best(data, split)
    results |= {
        "num_users": split.num_known_users,
        "num_items": split.num_known_items,
        "seconds": round(seconds, 2),
        "train_seconds": round(sum(report.seconds for report in reports), 2),
        "epochs": len(reports),
        "best_epoch": next((report.epoch for report in reversed(reports) if report.is_best), None),
    }
    if journal is not None and reports and processes.is_first:
        _save_lists(model, split.train, journal.directory)
        journal.finish(results)
    return model, results


def measure(model: Recommender, split: Split) -> dict[str, Any]:
    """Test results of a model, as plain values."""
    settings: dict[str, Any] = {
        "max_pairs": EXACT_SECONDS * model.pairs_per_second,
        "answers_new_ids": model.answers_new_ids,
    }
    scores = model_scores(model, split)
    test = evaluate(scores, split, on="test", **settings)
    validation = evaluate(scores, split, on="validation", **settings)
    return {
        "auc": test.auc,
        "validation_auc": validation.auc,
        "hr@10": test.hit_rate,
        "ndcg@10": test.ndcg,
        "auc_by_group": test.groups,
        "evaluated": test.num_evaluated,
        "held_out": test.num_held_out,
        "unanswered": _count_unanswerable(split) if not model.answers_new_ids else 0,
        "num_parameters": model.num_parameters,
        "embedding_parameters": model.embedding_parameters,
    }


def popularity_and_best(data: DataConfig, split: Split) -> dict[str, Any]:
    """The floor, which every dataset has, and the ceiling, which only the synthetic world knows."""
    floor = evaluate(popularity_scores(split.train), split)
    world = World.parse(data.data)
    results: dict[str, Any] = {"popularity_auc": floor.auc}
    if world is not None and data.core == 0 and data.split == "leave-one-out":
        results["best_possible_auc"] = best_possible(world, split).auc
    return results


def best_possible(world: World, split: Split) -> Metrics:
    """What the world's own probabilities score: nothing can be better, on average."""
    return evaluate(lambda users: torch.from_numpy(world.scores(users).astype(np.float32)), split, max_pairs=2e8)


def choose_device(name: str) -> torch.device:
    """`auto` takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("there is no CUDA device here; use --device cpu or auto")
    return torch.device(name)


def with_seed(config: TrainConfig, seed: int) -> TrainConfig:
    """The same training from another seed."""
    return replace(config, seed=seed)


def describe_run(
    data: DataConfig,
    model: Recommender,
    model_config: ModelConfig,
    train_config: TrainConfig,
    kinds: Mapping[str, str],
) -> dict[str, Any]:
    """Everything that a run directory's `config.json` says."""
    return {
        "data": asdict(data),
        "model": describe_recommender(model),
        "budget": model_config.budget,
        "kinds": dict(kinds),
        "train": asdict(train_config),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """What the results may depend on beside the settings."""
    return {
        "tableless": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


def size_scheme(config: ModelConfig, budget: int, vocab_size: int, *, seed: int) -> EmbeddingScheme:
    """The scheme of the config, as large as the budget allows."""
    return SCHEMES[config.scheme].from_budget(
        budget, embedding_dim=config.embedding_dim, vocab_size=vocab_size, seed=seed, **config.options
    )


def _give_rows_to_frequent(
    scheme: EmbeddingScheme, ids: np.ndarray[Any, np.dtype[np.int64]], counts: np.ndarray[Any, np.dtype[np.int64]]
) -> None:
    for module in scheme.modules():
        if isinstance(module, FrequentRows):
            module.assign_most_frequent(torch.from_numpy(counts), torch.from_numpy(np.array(ids)))


def _count_unanswerable(split: Split) -> int:
    new = (split.test_users >= split.num_known_users) | (split.test_items >= split.num_known_items)
    return int(new.sum())


def _save_lists(model: Recommender, train: Interactions, directory: Path) -> None:
    """What must be listed: the items that can be recommended, and the users of a scheme that has a row for each."""
    import polars as pl

    names = train.item_names if train.item_names is not None else pl.Series(values=np.array(train.item_ids))
    counts = np.bincount(train.items, minlength=train.num_items)
    lists = {"items": pl.DataFrame({"item": names, "id": np.array(train.item_ids), "actions": counts})}
    if not model.users.open_vocabulary:
        lists["users"] = pl.DataFrame({"id": np.array(train.user_ids)})
    for name, frame in lists.items():
        write_list(frame, directory / f"{name}.parquet")
