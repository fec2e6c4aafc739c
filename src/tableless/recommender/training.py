"""Training: one loop, from the first batch to the best model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import Queue
from threading import Thread
from typing import Any, Literal, Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.splits import Split
from ..kernels.resources import keeping_freed_memory
from .batches import Batches
from .distributed import Processes, agree_to_stop, average_buffers, share_gradients
from .evaluation import evaluate_on
from .models import Recommender
from .ranking import Sample, draw_sample
from .scoring import ModelInputs, model_scores, popularity_scores, what_happened, what_is_expected

LEAST_GAIN = 2e-4
"""What several epochs must add to the validation AUC to count as progress; less is within what seeds make."""
FAR_MORE = 5
"""So many times the patience, for a model that is no better than popularity yet."""


@dataclass(frozen=True)
class TrainConfig:
    """How to train; the defaults are the paper's where it says (Adam, 1e-3), with our reason where it does not.

    Attributes:
        epochs: At most this many passes over the data. A run is meant to end before, by `patience`.
        batch_size: Actions per step.
        num_negatives: Items drawn for each action that the user did not choose.
        learning_rate: Of AdamW.
        weight_decay: Of AdamW; full tables gain from 0.1 to 0.3.
        patience: Epochs without a better validation AUC before training stops; five times as many for a model that is
            not better than popularity yet.
        schedule: Of the learning rate: `"constant"` or `"one-cycle"`.
        recipe: `"fast"`: learn from a full table that is trained first. `"paper"`: from nothing, as published.
        seed: Everything random follows from it.

    Example:
        ```python
        import tableless

        config = tableless.TrainConfig(epochs=20, recipe="paper", seed=1)
        ```
    """

    epochs: int = 300  # a limit that is hardly ever reached: a run is meant to end by `patience`
    batch_size: int = 2048  # actions; large enough for matrix products, small enough for 500 steps an epoch on ML-1M
    num_negatives: int = 4  # as in NCF
    learning_rate: float = 1e-3
    weight_decay: float = 0.0  # AdamW's; full tables gain from 0.1 to 0.3 (docs/decisions.md)
    patience: int = 10  # epochs without a better validation AUC before it stops: `has_ended` is the rule
    schedule: Literal["constant", "one-cycle"] = "constant"  # of the learning rate
    recipe: Literal["fast", "paper"] = "fast"  # by way of a table, or from nothing: recipes.py
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in (("schedule", ("constant", "one-cycle")), ("recipe", ("fast", "paper"))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be {' or '.join(choices)}")


@dataclass(frozen=True)
class EpochReport:
    """What is known after an epoch."""

    epoch: int
    loss: float
    validation_auc: float
    seconds: float  # of training, without the validation
    examples_per_second: float
    is_best: bool
    has_ended: bool = False  # by the stopping rule; False where it may go on, or was cut off by the limit of epochs


class Journal(Protocol):
    """Where training leaves what must survive it (journal.py has the one that writes a directory)."""

    def resume(self) -> tuple[list[EpochReport], dict[str, Tensor]]:
        """The epochs done so far and the state after the last of them; empty if there is nothing to resume."""

    def start(self) -> tuple[dict[str, Tensor], list[dict[str, Any]]] | None:
        """What training began with (weights, a teacher) and the stages before, if an earlier attempt got that far."""

    def keep_start(self, model: Mapping[str, Tensor], stages: Sequence[Mapping[str, Any]]) -> None:
        """Keep what training begins with, where getting there took time, and what was done for it."""

    def record(self, report: EpochReport, model: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Keep the report, the state to resume from and, if it is the best so far, the model."""


@keeping_freed_memory()
def train(
    model: Recommender,
    split: Split,
    config: TrainConfig,
    *,
    teacher: Recommender | None = None,
    may_keep_start: bool = False,
    journal: Journal | None = None,
    processes: Processes = Processes(),  # noqa: B008 - frozen
    on_batch: Callable[[int, int, int, float], None] | None = None,
    on_epoch: Callable[[EpochReport], None] | None = None,
) -> list[EpochReport]:
    """Train in place and leave the weights of the best epoch in the model.

    Binary cross-entropy on each action and its sampled negatives; after each epoch the AUC on the validation actions
    decides which weights are kept and when to stop. With a `teacher`, a trained model of the same ids, the targets are
    what it expects. `may_keep_start` lets the weights it starts with compete too. Ctrl-C stops after the batch at hand
    and keeps the best so far.
    `on_batch(epoch, batch, batches, loss)` and `on_epoch(report)` are for showing progress.
    """
    device = next(model.parameters()).device
    inputs = ModelInputs.of(model, split.train)
    batches = Batches(
        split.train,
        batch_size=config.batch_size,
        num_negatives=config.num_negatives,
        num_items=split.num_known_items,
        seed=config.seed,
        rank=processes.rank,
        world_size=processes.world_size,
    )
    targets = what_happened if teacher is None else what_is_expected(teacher.eval(), split)
    step = share_gradients(_Loss(model), processes)
    optimizer = adam(model, config)
    steps = config.epochs * len(batches)
    sample = validation_sample(model, split)
    best_auc = _validation_auc(model, split, sample) if may_keep_start else 0.0
    reports, state = journal.resume() if journal else ([], {})
    best = {key: value.clone() for key, value in model.state_dict().items()}
    if reports:
        _restore(state, model, optimizer, best)
        best_auc = max(best_auc, *(report.validation_auc for report in reports))
    interrupted = False
    floor = _level_of_popularity(split, sample)
    for epoch in range(len(reports), config.epochs):
        if reports and reports[-1].has_ended:
            break
        model.train()
        start, total = time.perf_counter(), torch.zeros((), device=device)
        try:
            for index, batch in enumerate(batch.to(device) for batch in _prefetch(batches.epoch(epoch))):
                _set_rate(optimizer, config, (epoch * len(batches) + index) / steps)
                optimizer.zero_grad()
                loss = step(*inputs.of_batch(batch), targets(batch), batch.weight)
                loss.backward()
                optimizer.step()
                total += loss.detach()
                if on_batch:
                    on_batch(epoch, index + 1, len(batches), float(loss.detach()))
        except KeyboardInterrupt:
            interrupted = True
        if agree_to_stop(interrupted, processes):
            break  # an epoch cut short is not counted: resuming repeats it and ends where an undisturbed run would
        seconds = time.perf_counter() - start
        average_buffers(model, processes)
        auc = _validation_auc(model, split, sample)
        aucs = [*(earlier.validation_auc for earlier in reports), auc]
        report = EpochReport(
            epoch=epoch,
            loss=float(total) / len(batches),
            validation_auc=auc,
            seconds=seconds,
            examples_per_second=split.train.num_actions * (1 + config.num_negatives) / seconds,
            is_best=auc > best_auc,
            has_ended=has_ended(aucs, config.patience, floor=floor),
        )
        reports.append(report)
        if report.is_best:
            best_auc = auc
            best = {key: value.clone() for key, value in model.state_dict().items()}
        if journal:
            journal.record(report, best, _snapshot(model, optimizer, best))
        if on_epoch:
            on_epoch(report)
    model.load_state_dict(best)
    return reports


def adam(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimizer of every training on data."""
    return torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True)


class _Loss(nn.Module):
    """The loss of a batch, as a module of its own so that DistributedDataParallel can wrap it."""

    def __init__(self, model: Recommender) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        users: Tensor,
        items: Tensor,
        user: Tensor,
        item: Tensor,
        item_ids: Tensor,
        targets: Tensor,
        weight: Tensor | None,
    ) -> Tensor:
        scores = self.model.score_distinct(users, items, user, item, item_ids)  # [batch, 1 + num_negatives]
        return F.binary_cross_entropy_with_logits(scores, targets, weight)


def validation_sample(model: Recommender, split: Split) -> Sample:
    """Whom an epoch is measured on: as many as take a second or so, the same for every model of this kind."""
    known_only = not model.answers_new_ids
    return draw_sample(split, on="validation", max_pairs=model.pairs_per_second, known_only=known_only)


def _validation_auc(model: Recommender, split: Split, sample: Sample) -> float:
    return evaluate_on(sample, model_scores(model, split), split, metrics=["auc"]).auc


def _set_rate(optimizer: torch.optim.Optimizer, config: TrainConfig, progress: float) -> None:
    """One cycle: up from a tenth during the first tenth, then down along a cosine to nearly nothing."""
    share = 1.0
    if config.schedule == "one-cycle":
        share = 0.1 + 9 * progress if progress < 0.1 else (1 + math.cos(math.pi * (progress - 0.1) / 0.9)) / 2
    for group in optimizer.param_groups:
        group["lr"] = config.learning_rate * share


def has_ended(aucs: Sequence[float], patience: int, *, floor: float) -> bool:
    """The one stopping rule: `patience` epochs gained less than `LEAST_GAIN` of validation AUC.

    A model that is not above `floor`, the level of popularity, has hardly begun: it has `FAR_MORE` patience. (Hash
    embedding stays there for twenty epochs, and rises then.)
    """
    reference, last = -1.0, 0
    for epoch, auc in enumerate(aucs):
        if auc >= reference + LEAST_GAIN:
            reference, last = auc, epoch
    return len(aucs) - 1 - last >= patience * (1 if reference > floor else FAR_MORE)


def _level_of_popularity(split: Split, sample: Sample) -> float:
    """The AUC of popularity on the validation data, and one standard error more: what is above has learned tastes."""
    popularity = evaluate_on(sample, popularity_scores(split.train), split, metrics=["auc"])
    return popularity.auc + popularity.errors.get("auc", 0.0)


def is_capped(reports: Sequence[EpochReport], config: TrainConfig) -> bool:
    """Did it end at its limit of epochs, when it might have become better? A schedule of one cycle ends by itself."""
    at_limit = len(reports) >= config.epochs and not (reports and reports[-1].has_ended)
    return config.schedule == "constant" and at_limit


def _snapshot(model: nn.Module, optimizer: torch.optim.Optimizer, best: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Everything the next epoch depends on. Random draws are not in it: they depend on seed and epoch alone."""
    tensors = {f"model.{key}": value for key, value in model.state_dict().items()}
    tensors |= {f"best.{key}": value for key, value in best.items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{key}": value for key, value in state.items()}
    return tensors


def _restore(
    state: Mapping[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer, best: dict[str, Tensor]
) -> None:
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "optimizer": {}}
    for key, value in state.items():
        part, _, name = key.partition(".")
        parts[part][name] = value
    model.load_state_dict(parts["model"])
    best.update(parts["best"])
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in parts["optimizer"].items():
        index, _, key = name.partition(".")
        moments.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})


Item = TypeVar("Item")


def _prefetch(items: Iterator[Item], depth: int = 4) -> Iterator[Item]:
    """Prepare the next few in another thread; sampling negatives runs outside Python's lock."""
    queue: Queue[Item | BaseException | None] = Queue(depth)
    abandoned = False

    def fill() -> None:
        try:
            for item in items:
                if abandoned:
                    return
                queue.put(item)
            queue.put(None)
        except BaseException as error:
            queue.put(error)

    worker = Thread(target=fill, daemon=True)
    worker.start()
    try:
        while (item := queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        abandoned = True
        while worker.is_alive():  # it may be waiting for room
            while not queue.empty():
                queue.get_nowait()
            worker.join(0.01)
