"""The training loop of click models. The epoch with the least log loss on validation data is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...data.clicks.split import ClickSplit, Examples
from ...kernels.idle_cores import on_idle_cores
from ...kernels.resources import keeping_freed_memory
from ..teachers import Stage
from ..training_loop import OnBatch
from .click_measures import measure_clicks, predict
from .click_model import ClickModel

_MOST_VALIDATED = 100_000


@dataclass(frozen=True)
class ClickEpoch:
    """What is known after an epoch."""

    epoch: int
    loss: float
    validation_auc: float
    validation_log_loss: float
    seconds: float
    is_best: bool

    def __str__(self) -> str:
        """As a person is told of it."""
        best = "  best so far" if self.is_best else ""
        return (
            f"epoch {self.epoch + 1:3}  loss {self.loss:.4f}  validation AUC {self.validation_auc:.4f}  "
            f"log loss {self.validation_log_loss:.4f}{best}"
        )


@dataclass(frozen=True)
class ClickTraining:
    """How one stage is trained."""

    epochs: int
    patience: int
    batch_size: int
    learning_rate: float
    weight_decay: float  # of the rows of tables alone
    num_negatives: int
    one_cycle: bool
    seed: int


@dataclass(frozen=True)
class ClickWatchers:
    """Who is told how far training is."""

    on_note: Callable[[str], None] = lambda text: None
    on_batch: OnBatch | None = None
    on_epoch: Callable[[ClickEpoch], None] = lambda epoch: None


@on_idle_cores()
@keeping_freed_memory()
def train_click_model(
    name: str,
    model: ClickModel,
    split: ClickSplit,
    settings: ClickTraining,
    *,
    teacher: ClickModel | None = None,
    watchers: ClickWatchers = ClickWatchers(),
) -> Stage:
    """Train a model in place and keep its best epoch; with a teacher, by what that expects of the same examples.

    With a teacher the weights at the beginning compete with those of the epochs.
    """
    start = time.perf_counter()
    random = np.random.default_rng(settings.seed)
    validation = validation_examples(split, settings.num_negatives)
    optimizer = _optimizer(model, settings)
    best, least = _weights(model), float("inf")
    best_epoch: int | None = None
    if teacher is not None:
        least = _measured(model, validation)["log_loss"]
    epoch = since = 0
    while epoch < settings.epochs and since < settings.patience:
        began = time.perf_counter()
        loss = _epoch(
            model, split, settings, optimizer, random, teacher=teacher, epoch=epoch, on_batch=watchers.on_batch
        )
        set_new_values(model)
        measured = _measured(model, validation)
        is_best = measured["log_loss"] < least
        if is_best:
            best, least, best_epoch = _weights(model), measured["log_loss"], epoch
        since = 0 if is_best else since + 1
        watchers.on_epoch(
            ClickEpoch(epoch, loss, measured["auc"], measured["log_loss"], time.perf_counter() - began, is_best)
        )
        epoch += 1
    model.load_state_dict(best)
    model.eval()
    return {
        "stage": name,
        "settings": vars(settings),
        "epochs": epoch,
        "best_epoch": best_epoch,
        "capped": not settings.one_cycle and since < settings.patience,
        "seconds": round(time.perf_counter() - start, 2),
    }


def validation_examples(split: ClickSplit, num_negatives: int) -> Examples:
    """The same for everyone: at most so many rows, with the same items drawn."""
    random = np.random.default_rng(1)
    rows = split.validation
    if len(rows) > _MOST_VALIDATED:
        rows = np.sort(random.choice(rows, _MOST_VALIDATED, replace=False))
    return split.examples(rows, num_negatives=num_negatives, random=random)


def test_examples(split: ClickSplit, num_negatives: int) -> Examples:
    """All test rows, with the same items drawn for everyone."""
    return split.examples(split.test, num_negatives=num_negatives, random=np.random.default_rng(2))


@torch.no_grad()
def set_new_values(model: ClickModel) -> None:
    """In tables, give all values that training does not know the mean row of those that it knows."""
    for column in model.value_columns().values():
        if column.scheme.is_the_table and column.num_values:
            (rows,) = column.scheme.parameters()
            rows[0] = rows[1:].mean(0)


def _epoch(
    model: ClickModel,
    split: ClickSplit,
    settings: ClickTraining,
    optimizer: torch.optim.Optimizer,
    random: np.random.Generator,
    *,
    teacher: ClickModel | None,
    epoch: int,
    on_batch: OnBatch | None,
) -> float:
    model.train()
    device = next(model.parameters()).device
    examples = split.examples(split.train, num_negatives=settings.num_negatives, random=random).shuffled(random)
    total, count = torch.zeros((), dtype=torch.float64), -(-len(examples) // settings.batch_size)
    for number, (inputs, labels) in enumerate(examples.batches(settings.batch_size)):
        if settings.one_cycle:
            done = (epoch * count + number) / (settings.epochs * count)
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * _one_cycle(done)
        with on_idle_cores():
            inputs = {name: values.to(device) for name, values in inputs.items()}
            targets = labels.to(device) if teacher is None else _expected(teacher, inputs)
            loss = F.binary_cross_entropy_with_logits(model(inputs), targets)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        total += loss.detach().double().cpu() * len(labels)
        if on_batch is not None:
            on_batch(epoch, number + 1, count, float(loss.detach()))
    return float(total) / len(examples)


@torch.no_grad()
def _expected(teacher: ClickModel, inputs: dict[str, Tensor]) -> Tensor:
    """How likely the teacher thinks each click."""
    return torch.sigmoid(teacher(inputs))


def _optimizer(model: ClickModel, settings: ClickTraining) -> torch.optim.Optimizer:
    """AdamW. Only rows of tables decay: they are many, and most are seen seldom."""
    rows = [
        row for column in model.value_columns().values() if column.scheme.is_the_table
        for row in column.scheme.parameters()
    ]  # fmt: skip
    of_tables = {id(row) for row in rows}
    others = [weight for weight in model.parameters() if id(weight) not in of_tables and weight.requires_grad]
    groups: list[dict[str, Any]] = [{"params": others, "weight_decay": 0.0}]
    groups += [{"params": rows, "weight_decay": settings.weight_decay}] if rows else []
    return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)


def _measured(model: ClickModel, examples: Examples) -> dict[str, float]:
    return measure_clicks(predict(model, examples), examples.labels)


def _one_cycle(done: float) -> float:
    """The rate as a share of the highest: up in the first tenth, then down to nothing."""
    return min(done / 0.1 + 0.05, 1.0) if done < 0.1 else (1 - done) / 0.9


def _weights(model: ClickModel) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}
