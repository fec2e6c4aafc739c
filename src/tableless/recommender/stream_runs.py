"""A stream from files to a run directory: what `train --stream` does.

A GMF of `dhe` is learned by the `StreamLearner`. Any other model that is open to new ids is learned by gradients alone,
also by several processes, and forgets more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ..data.config import DataConfig
from ..data.loading import find_data
from ..data.reading.batches import dropped_in_words
from ..data.reading.files import sniff, stream_actions
from ..data.reading.line_sources import is_of_events
from ..embedding.budget import Allowance, is_share, resolve_budget
from .distributed import Processes
from .models import Recommender, find_backbone
from .run_directory import RunDirectory, item_list
from .runs import ModelConfig, choose_device, describe_run, size_scheme
from .stream_events import EventRun
from .stream_learner import StreamConfig, StreamLearner
from .stream_options import StreamOptions
from .stream_samples import RESERVOIR, Reservoir
from .streaming import StreamReport, learn_stream, train_on_stream
from .training import TrainConfig


def run_stream(
    data: DataConfig,
    model_config: ModelConfig,
    train_config: TrainConfig,
    *,
    options: StreamOptions = StreamOptions(),  # noqa: B008 - frozen
    out: Path | str | None = None,
    device: str = "auto",
    processes: Processes = Processes(),  # noqa: B008 - frozen
    on_note: Callable[[str], None] | None = None,
    on_batch: Callable[[StreamReport], None] | None = None,
) -> dict[str, Any]:
    """Train on a stream, each process on its own share; with `out`, leave a run directory.

    Parquet files are read once. Lines of JSON or CSV may come for ever (stream_events.py). `on_note` is told which
    columns are read, and in the end how many rows of the share were dropped.
    """
    start = time.perf_counter()
    _refuse_share(model_config.budget)
    tell, on_device = on_note or (lambda remark: None), choose_device(device)
    if options.follow or options.start_from or is_of_events(data.data):
        _require_learner(model_config, processes, on_device)
        return _run_events(data, model_config, train_config, options, out=out, tell=tell, on_batch=on_batch)
    if out is not None and processes.is_first:
        RunDirectory(out).require_free()
    files = find_data(data.data, data_dir=data.data_dir)
    sniffed = sniff(files, user_col=data.user_col, item_col=data.item_col, time_col="", rules=data.row_rules)
    for remark in (str(sniffed), *sniffed.remarks):
        tell(remark)
    allowed = resolve_budget(model_config.budget, embedding_dim=model_config.embedding_dim, vocab_size=1)
    dropped: Counter[str] = Counter()
    batches = stream_actions(
        sniffed,
        rank=processes.rank,
        world_size=processes.world_size,
        batch_size=max(1, train_config.batch_size // processes.world_size),
        dropped=dropped,
    )
    model: Recommender
    if has_learner(model_config, processes, on_device):
        learner = StreamLearner(allowed, stream_config(model_config, train_config, options))
        report = learn_stream(learner, batches, on_batch=on_batch)
        model, reservoir = learner.model(), learner.seen
    else:
        _refuse_half_life(options.half_life)
        model = _untrained(model_config, allowed, train_config.seed).to(on_device)
        reservoir = Reservoir(RESERVOIR, train_config.seed + processes.rank)
        told: dict[str, Any] = {"processes": processes, "reservoir": reservoir, "on_batch": on_batch}
        report = train_on_stream(model, batches, train_config, **told)
    for remark in dropped_in_words(dropped):
        tell(remark)
    results = {"auc": report.auc, "recent_auc": report.recent_auc, "actions": report.num_actions}
    results |= {**model.sizes(num_ids=None), "seconds": round(time.perf_counter() - start, 2)}
    model.pack()
    if out is not None and processes.is_first:
        kinds = {"user": sniffed.kinds.user, "item": sniffed.kinds.item}
        config = describe_run(data, model, model_config, train_config, kinds)
        # Names of strings are not kept, because a stream is not for listing. Their ids are.
        RunDirectory(out).write(config, model.state_dict(), items=item_list(reservoir.values), results=results)
    return results


def _run_events(
    data: DataConfig,
    model_config: ModelConfig,
    train_config: TrainConfig,
    options: StreamOptions,
    *,
    out: Path | str | None,
    tell: Callable[[str], None],
    on_batch: Callable[[StreamReport], None] | None,
) -> dict[str, Any]:
    """A stream of lines: the results so far are in the run directory with every checkpoint."""
    start = time.perf_counter()
    allowed = resolve_budget(model_config.budget, embedding_dim=model_config.embedding_dim, vocab_size=1)
    learner = StreamLearner(allowed, stream_config(model_config, train_config, options))

    def describe(model: Recommender, kinds: Mapping[str, str]) -> dict[str, Any]:
        return describe_run(data, model, model_config, train_config, kinds)

    run = EventRun(learner, data, options, out=None if out is None else str(out), describe=describe)
    if learner.num_actions:
        tell(f"going on after {learner.num_actions:,} actions")
    run.learn(size=train_config.batch_size, on_batch=on_batch)
    wrong = [f"{count:,} {reason}" for reason, count in run.reader.counts.items() if count]
    if wrong:
        tell(f"events: {', '.join(wrong)} (malformed and repeated ones were left out)")
    sizes = learner.model().sizes(num_ids=None)
    return {**run.results(), **sizes, "seconds": round(time.perf_counter() - start, 2)}


def _refuse_share(budget: str) -> None:
    if is_share(budget):
        raise ValueError(
            f"a budget of {budget} is a share of a full table, or bytes for each id, and a stream has no known "
            'vocabulary; give memory ("1.5MB") or a number of parameters ("1000000 parameters")'
        )


def _require_learner(model: ModelConfig, processes: Processes, device: torch.device) -> None:
    if not has_learner(model, processes, device):
        raise ValueError(
            "a stream of events is learned by a GMF of the scheme dhe, in one process on the CPU; take these, or give "
            "parquet files without --follow and --from"
        )


def _refuse_half_life(half_life: int | None) -> None:
    if half_life is not None:
        raise ValueError(
            f"half_life {half_life} is that of popularity, which only a GMF of the scheme dhe has, in one process on "
            "the CPU; leave it out, or take such a model"
        )


def _untrained(config: ModelConfig, allowed: Allowance, seed: int) -> Recommender:
    """A model to be learned by gradients. Users and items have half of the budget each."""
    users, items = (size_scheme(config, allowed.share(1, 2), 1, seed=2 * seed + side) for side in range(2))
    return find_backbone(config.backbone)(users=users, items=items, seed=seed)


def has_learner(model: ModelConfig, processes: Processes, device: torch.device) -> bool:
    """Is such a model learned by the `StreamLearner`? It works on the CPU, in one process, and chooses its networks."""
    is_usual = model.scheme == "dhe" and model.backbone == "gmf" and not model.options
    return is_usual and processes.world_size == 1 and device.type == "cpu"


def stream_config(model: ModelConfig, training: TrainConfig, options: StreamOptions) -> StreamConfig:
    """How the learner learns, as far as the user says it."""
    default = TrainConfig()
    for name in ("learning_rate", "weight_decay"):
        if getattr(training, name) != getattr(default, name):
            raise ValueError(
                f"{name} is {getattr(training, name)}, but a stream with the scheme dhe has rates of its own for rows, "
                "networks and popularity; leave it out, or take another scheme"
            )
    given: dict[str, Any] = {"num_negatives": training.num_negatives, "half_life": options.half_life}
    given = {name: value for name, value in given.items() if value is not None}
    return StreamConfig(embedding_dim=model.embedding_dim, seed=training.seed, **given)
