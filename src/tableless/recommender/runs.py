"""One run from data to results. `tableless train` does it once, `compare` for every combination."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import __version__
from ..data.config import DataConfig
from ..data.loading import example_users
from ..data.splits import Split
from ..embedding.budget import Budget, BudgetTooSmall, resolve_budget
from ..embedding.deep_hash import PAPER_NETWORK
from ..embedding.fit_progress import OnFit
from ..embedding.scheme import EmbeddingScheme
from ..embedding.schemes import AUTO, SCHEMES, budget_advice, choose_scheme
from ..hints import did_you_mean, require_known_name
from ..kernels.idle_cores import on_idle_cores
from .clicks.backbones import CLICK_BACKBONES
from .clicks.sizing import JOINT
from .distributed import Processes
from .evaluation import popularity_warning
from .features import SIDES, Features, kinds_of
from .journal import TrainingJournal
from .measurement import measure, measure_floor
from .models import BACKBONES, Recommender, describe_recommender, find_backbone
from .recipes import Watchers, train_by_recipe
from .stage_settings import with_loss
from .teachers import Teacher
from .training import EpochReport, TrainConfig

DEVICES = ("auto", "cpu", "cuda")
"""What a device may be called, beside other names that torch knows (`cuda:1`)."""


@dataclass(frozen=True)
class ModelConfig:
    """Which model; the paper's values as defaults."""

    scheme: str = field(
        default="dhe",
        metadata={"help": "An embedding scheme, or auto for the best one for the budget; docs/choosing.md lists them."},
    )
    budget: str = field(
        default="1/16",
        metadata={
            "help": "A share of the full table's bytes (1/16, 25%), memory (64MB, 8B/id), or a number of parameters "
            "('20000 parameters', '1/4 parameters')."
        },
    )
    new_ids: bool = field(
        default=False,
        metadata={"option": "--new-ids", "help": "With the scheme auto: it will be asked about ids that are not here."},
    )
    backbone: str = field(
        default="gmf", metadata={"help": "gmf or mlp; with --columns fm, deepfm (the default there), dcn or dlrm."}
    )
    embedding_dim: int = field(default=32, metadata={"help": "Dimensions of an embedding."})
    options: dict[str, Any] = field(default_factory=dict)  # further arguments of the scheme's from_budget

    def __post_init__(self) -> None:
        require_known_name("scheme", self.scheme, (*SCHEMES, AUTO, JOINT))
        require_known_name("backbone", self.backbone, (*BACKBONES, *CLICK_BACKBONES))
        require_budget(self.budget)


def require_budget(budget: Budget) -> None:
    """Refuse a budget that cannot be understood. Whether it is large enough is known later, with the data."""
    resolve_budget(budget, embedding_dim=ModelConfig.embedding_dim, vocab_size=2**40)


def build_model(
    config: ModelConfig,
    split: Split,
    *,
    seed: int,
    features: Features = Features(),  # noqa: B008 - frozen
) -> Recommender:
    """A recommender of the given kind and budget for the users and items of a split."""
    backbone = find_backbone(config.backbone)
    config = decided(config, split)[1]
    config = replace(config, budget="1/1") if config.scheme == "full" else config
    train, vocab = split.train, split.num_known_users + split.num_known_items
    total = resolve_budget(config.budget, embedding_dim=config.embedding_dim, vocab_size=vocab)
    # Items are ranked for one user at a time. Where scores are products, the length of a user's vector changes nothing
    # in their order, and need not be stored.
    spared = SCHEMES[config.scheme].without_lengths if backbone.scores_are_products else {}
    in_code = [features.options_for(side, config.scheme) for side in SIDES]
    sides = (
        (replace(config, options={**spared, **config.options, **in_code[0]}), split.num_known_users),
        (replace(config, options={**config.options, **in_code[1]}), split.num_known_items),
    )
    try:
        # Users and items share the budget as they would share the memory of full tables.
        users, items = (
            size_scheme(own, total.share(count, vocab), count, seed=2 * seed + side)
            for side, (own, count) in enumerate(sides)
        )
    except BudgetTooSmall as error:
        counts = [count for _, count in sides]
        advice = budget_advice(config.scheme, total, counts, embedding_dim=config.embedding_dim, options=config.options)
        raise ValueError(f"{error}. {advice}") from None
    users.assign_frequent(train.user_ids, np.diff(train.starts))
    items.assign_frequent(train.item_ids, np.bincount(train.items, minlength=train.num_items))
    model = backbone(users=users, items=items, seed=seed)
    features.fill(model, split)
    return model


@on_idle_cores()
def train_and_measure(
    data: DataConfig,
    model_config: ModelConfig,
    train_config: TrainConfig,
    split: Split,
    *,
    features: Features = Features(),  # noqa: B008 - frozen
    teacher: Teacher | None = None,
    built: Recommender | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    device: str = "auto",
    with_example_users: bool = True,
    processes: Processes = Processes(),  # noqa: B008 - frozen
    on_note: Callable[[str], None] | None = None,
    on_batch: Callable[[int, int, int, float], None] | None = None,
    on_epoch: Callable[[EpochReport], None] | None = None,
    on_fit: OnFit | None = None,
) -> tuple[Recommender, dict[str, Any]]:
    """Train and measure one model; with `out`, leave a run directory. Returns the model and its results.

    With a `teacher` (from `recipes.train_teacher`) the fast recipe trains no table of its own; the teacher's time is
    counted. `built` is a model with parts that no config describes, such as side features; `model_config` is then only
    written down. Unless `with_example_users`, no server of the run shows ids of users as examples.
    """
    start = time.perf_counter()
    watchers = Watchers(on_note or (lambda text: None), on_batch, on_epoch, on_fit)
    reason, model_config = decided(model_config, split, watchers.on_note)
    model_config = as_trained(model_config, train_config)
    model = build_model(model_config, split, seed=train_config.seed, features=features) if built is None else built
    model = model.to(choose_device(device))
    train_config = with_loss(train_config, model)
    config = describe_run(data, model, model_config, train_config, kinds_of(split), features)
    journal = None if out is None else TrainingJournal(out, config, resume=resume, writes=processes.is_first)
    training = train_by_recipe(
        model, split, train_config, teacher=teacher, journal=journal, processes=processes, watchers=watchers
    )
    model.pack()  # what is measured is what is stored
    described = features.describe_new_ids(model, split, watchers.on_note)
    config["model"] = describe_recommender(model)
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
        "epochs": training.on_data["epochs"],
        "best_epoch": training.on_data["best_epoch"],
    }
    results |= ({"choice": reason} if reason else {}) | ({"features": described} if described else {})
    scheme, num_actions = config["model"]["items"]["scheme"], split.train.num_actions
    warning = popularity_warning(results, training=asdict(train_config), scheme=scheme, num_actions=num_actions)
    results |= {"warning": warning} if warning else {}
    if journal is not None and training.reports:
        if processes.is_first:
            journal.files.write_example_users(example_users(data, split.train) if with_example_users else None)
        journal.finish(model, config, split.train, results, features=features)
    return model, results


def decided(
    config: ModelConfig, split: Split, on_note: Callable[[str], None] = lambda text: None
) -> tuple[str | None, ModelConfig]:
    """The config with a scheme that suits the budget and the data instead of `auto`, and the reason, which is told."""
    if config.scheme != AUTO:
        return None, config
    choice = choose_scheme(
        config.budget,
        embedding_dim=config.embedding_dim,
        vocab_size=split.num_known_users + split.num_known_items,
        open_vocabulary=config.new_ids,
    )
    on_note(choice.reason)
    return choice.reason, replace(config, scheme=choice.name, options={**choice.options, **config.options})


def as_trained(model: ModelConfig, training: TrainConfig) -> ModelConfig:
    """The config of what is really built. A full table has one size, and the paper's recipe has the paper's network."""
    if model.scheme == "full":
        model = replace(model, budget="1/1")
    if training.recipe == "paper" and model.scheme != AUTO and SCHEMES[model.scheme].is_computed:
        model = replace(model, options={**PAPER_NETWORK, **model.options})
    return model


def choose_device(name: str) -> torch.device:
    """`auto` takes a GPU where there is one. A name that torch does not know is refused."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("there is no CUDA device here; use device='cpu' or device='auto'")
    try:
        return torch.device(name)
    except RuntimeError:
        raise ValueError(
            f"no device is called {name!r}; known are {', '.join(DEVICES)}{did_you_mean(name, DEVICES)}"
        ) from None


def with_seed(config: TrainConfig, seed: int) -> TrainConfig:
    """The same training from another seed."""
    return replace(config, seed=seed)


def describe_run(
    data: DataConfig,
    model: Recommender,
    model_config: ModelConfig,
    train_config: TrainConfig,
    kinds: Mapping[Any, str],  # of "user" and "item"
    features: Features = Features(),  # noqa: B008 - frozen
) -> dict[str, Any]:
    """Everything that a run directory's `config.json` says."""
    of_features = {"features": features.describe()} if features.tables else {}
    return {
        "data": data.settings(),
        "model": describe_recommender(model),
        "budget": model_config.budget,
        "kinds": dict(kinds),
        **of_features,
        "train": asdict(train_config),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Versions that the results may depend on, beside the settings."""
    return {
        "tableless": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


def size_scheme(config: ModelConfig, budget: Budget, vocab_size: int, *, seed: int) -> EmbeddingScheme:
    """The scheme of the config, as large as the budget allows."""
    return SCHEMES[config.scheme].from_budget(
        budget, embedding_dim=config.embedding_dim, vocab_size=vocab_size, seed=seed, **config.options
    )
