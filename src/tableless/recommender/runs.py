"""One run from data to results: what `train` does once and `compare` does for every combination."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import __version__
from ..embedding.arguments import require_kinds
from ..embedding.deep_hash import PAPER_NETWORK
from ..embedding.scheme import EmbeddingScheme, resolve_budget
from ..embedding.schemes import SCHEMES
from ..embedding.tables.frequent_rows import FrequentRows
from .checkpoint import RunDirectory, describe_recommender
from .datasets import load_interactions, load_parts
from .distributed import Processes
from .evaluation import evaluate, evaluate_on
from .interactions import Interactions
from .lists import write_list
from .models import BACKBONES, Recommender
from .recipes import Watchers, train_by_recipe
from .samples import draw_sample
from .scoring import by_rows, model_scores, popularity_scores
from .splits import Split, split_given, split_global_time, split_leave_one_out
from .teachers import Teacher
from .training import EpochReport, TrainConfig
from .world import World

EXACT_SECONDS = 20
"""An evaluation over all users and items that would take longer than about this is done on a sample (samples.py)."""


@dataclass(frozen=True)
class DataConfig:
    """Which interactions, and how they are split."""

    data: str
    data_dir: str | None = None
    user_col: str | None = None
    item_col: str | None = None
    time_col: str | None = None
    core: int = 0
    split: str = "leave-one-out"  # or global-time, or column, or column:NAME
    split_seed: int = 0
    test: str | None = None  # a file with the test actions: everything in `data` is then for training

    def __post_init__(self) -> None:
        if self.split not in ("leave-one-out", "global-time") and not self.part_col:
            raise ValueError(
                f"split is {self.split!r}; it must be leave-one-out, global-time, column (the one called `split`) or "
                "column:NAME"
            )
        if self.test is not None and self.split != "leave-one-out":
            raise ValueError(f"the test file {self.test} is the split; split {self.split} cannot be used with it")
        if self.core and (self.test is not None or self.part_col):
            raise ValueError(
                f"core {self.core} cannot be used with a given split, which would not be the given one any more"
            )

    @property
    def part_col(self) -> str | None:
        """The column that says train, validation or test of each action; None where no column does."""
        kind, _, name = self.split.partition(":")
        return (name if ":" in self.split else "split") if kind == "column" else None

    def settings(self) -> dict[str, Any]:
        """Plain values that build it again; `test` only where there is one, as in what was written before it."""
        settings = asdict(self)
        return settings if self.test is not None else {key: settings[key] for key in settings if key != "test"}


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
    if config.test is not None or config.part_col is not None:
        parts = load_parts(
            config.data,
            test=config.test,
            part_col=config.part_col,
            data_dir=config.data_dir,
            user_col=config.user_col,
            item_col=config.item_col,
            cache_dir=cache_dir,
            report=report,
        )
        return split_given(parts, seed=config.split_seed, report=report)
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
    config = replace(config, budget="1/1") if config.scheme == "full" else config
    train, vocab = split.train, split.num_known_users + split.num_known_items
    total = resolve_budget(config.budget, embedding_dim=config.embedding_dim, vocab_size=vocab)
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
    teacher: Teacher | None = None,
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

    `teacher` spares the fast recipe training a table of its own (`recipes.train_teacher`); its time is counted.
    `built` is a model that somebody has built already, of parts that no config describes (side features);
    `model_config` is then only written down.
    """
    start = time.perf_counter()
    model_config = as_trained(model_config, train_config)
    model = build_model(model_config, split, seed=train_config.seed) if built is None else built
    model = model.to(choose_device(device))
    kinds = {"user": split.train.user_kind, "item": split.train.item_kind}
    config = describe_run(data, model, model_config, train_config, kinds)
    journal = None if out is None else RunDirectory(out, config, resume=resume, writes=processes.is_first)
    watchers = Watchers(on_note or (lambda text: None), on_batch, on_epoch)
    training = train_by_recipe(
        model, split, train_config, teacher=teacher, journal=journal, processes=processes, watchers=watchers
    )
    seconds = time.perf_counter() - start + (sum(stage["seconds"] for stage in teacher.stages) if teacher else 0.0)
    results = measure(model, split) | measure_floor(data, model, split)
    results |= {
        "recipe": train_config.recipe,
        "capped": training.is_capped,
        "stages": training.stages,
        "model": config["model"],
        "num_users": split.num_known_users,
        "num_items": split.num_known_items,
        "seconds": round(seconds, 2),
        "train_seconds": round(sum(report.seconds for report in training.reports), 2),
        "epochs": training.stages[-1]["epochs"],
        "best_epoch": training.stages[-1]["best_epoch"],
    }
    if journal is not None and training.reports and processes.is_first:
        _save_lists(model, split.train, journal.directory)
        journal.finish(results)
    return model, results


def as_trained(model: ModelConfig, training: TrainConfig) -> ModelConfig:
    """What is really built: a full table has one size, whatever the budget; the paper's recipe has its network."""
    if model.scheme == "full":
        model = replace(model, budget="1/1")
    if training.recipe == "paper" and getattr(SCHEMES.get(model.scheme), "is_computed", False):
        model = replace(model, options={**PAPER_NETWORK, **model.options})
    return model


def measure(model: Recommender, split: Split) -> dict[str, Any]:
    """Test results of a model, as plain values.

    Where the data has new ids and the model answers for them, `known` has the results on the ids of training alone,
    which can be compared with those of a model that knows no others.
    """
    score, settings = model_scores(model, split), _settings(model)
    test = evaluate(score, split, on="test", **settings)
    validation = evaluate(score, split, on="validation", **settings)
    results = test.as_dict() | {
        "validation": validation.as_dict(),
        "validation_auc": validation.auc,
        "auc_by_group": test.groups,
        "unanswered": _count_unanswerable(split) if not model.answers_new_ids else 0,
        "num_parameters": model.num_parameters,
        "embedding_parameters": model.embedding_parameters,
    }
    if model.answers_new_ids and 0 < _count_unanswerable(split) < len(split.test_users):
        results["known"] = evaluate(score, split, **settings | {"known_only": True}).as_dict()
    return results


def measure_floor(data: DataConfig, model: Recommender, split: Split) -> dict[str, Any]:
    """The floor, which every dataset has, and the ceiling, which only the synthetic world knows.

    Both on the users and items that the model is measured on.
    """
    sample = draw_sample(split, on="test", **_settings(model))
    floor = evaluate_on(sample, popularity_scores(split.train), split)
    results: dict[str, Any] = {"popularity": floor.as_dict(), "popularity_auc": floor.auc}
    world = World.parse(data.data)
    if world is not None and data.core == 0 and data.split == "leave-one-out":
        best = evaluate_on(sample, by_rows(lambda users: torch.from_numpy(world.scores(users)).float()), split)
        results |= {"best_possible": best.as_dict(), "best_possible_auc": best.auc}
    return results


def _settings(model: Recommender) -> dict[str, Any]:
    """How far a model of this kind is measured: the same for all its schemes."""
    return {"max_pairs": EXACT_SECONDS * model.pairs_per_second, "known_only": not model.answers_new_ids}


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
        "data": data.settings(),
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
