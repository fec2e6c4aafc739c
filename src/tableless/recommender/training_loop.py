"""The training loop, from the first batch to the best model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..data.splits import Split
from ..embedding.tuning_loop import one_cycle
from ..kernels.idle_cores import on_idle_cores
from ..kernels.resources import keeping_freed_memory
from .batches import Batch, Batches, prefetch
from .distributed import Processes, agree_to_stop, average_buffers, share_gradients
from .evaluation import measure_on_sample
from .losses import LOSSES, ListBatch, ListLoss, Lists, ListVectors, shared_softmax
from .models import Recommender
from .ranking import draw_sample
from .scoring import ModelInputs, Scorer, model_scores, popularity_scores
from .training import EpochReport, Journal, TrainConfig, has_ended

OnBatch = Callable[[int, int, int, float], None]
"""Is told the epoch, how many of how many batches are done, and the loss of the last."""
OnEpoch = Callable[[EpochReport], None]


@on_idle_cores()
@keeping_freed_memory()
def train_model(
    model: Recommender,
    split: Split,
    config: TrainConfig,
    *,
    teacher: Recommender | None = None,
    may_keep_start: bool = False,
    journal: Journal | None = None,
    processes: Processes = Processes(),  # noqa: B008 - frozen
    on_batch: OnBatch | None = None,
    on_epoch: OnEpoch | None = None,
) -> list[EpochReport]:
    """Train in place and leave the weights of the best epoch in the model.

    The loss is that of the config, on each action and its sampled negatives. After each epoch, the AUC on the
    validation actions (or what the config selects) decides which weights are kept and when to stop. With a `teacher`, a
    trained model of the same ids, the targets are what it expects; where scores are inner products, of lists
    (losses.py). With `may_keep_start`, the weights at the start compete too. Ctrl-C stops after the batch at hand and
    keeps the best so far. `on_batch` and `on_epoch` are for showing progress.
    """
    if config.loss == "auto":  # the recipe has not chosen one, so this is a training from nothing, as the paper's
        config = replace(config, loss="bce")
    epochs = _Epochs(model, split, config, teacher=teacher, processes=processes)
    deciding = config.deciding_measure
    validation = Validation(model, split, deciding=deciding)
    best_value = validation.measure(model_scores(model, split))[deciding] if may_keep_start else 0.0
    best = _copy_weights(model)
    reports, state = journal.resume() if journal else ([], {})
    if reports:
        _restore(state, model, epochs.optimizer, best)
        best_value = max(best_value, *(report.deciding for report in reports))
    for epoch in range(len(reports), config.epochs):
        if reports and reports[-1].has_ended:
            break
        trained = epochs.train(epoch, on_batch)
        if trained is None:
            break  # an epoch cut short is not counted: resuming repeats it and ends where an undisturbed run would
        loss, seconds = trained
        measured = validation.measure(model_scores(model, split))
        value = measured[deciding]
        values = [*(earlier.deciding for earlier in reports), value]
        report = EpochReport(
            epoch=epoch,
            loss=loss,
            validation_auc=measured["auc"],
            seconds=seconds,
            examples_per_second=epochs.examples_per_epoch / seconds,
            is_best=value > best_value,
            has_ended=has_ended(values, config.patience, floor=validation.level_of_popularity),
            selected=None if deciding == "auc" else value,
        )
        reports.append(report)
        if report.is_best:
            best_value, best = value, _copy_weights(model)
        if journal:
            journal.record(report, best, _snapshot(model, epochs.optimizer, best))
        if on_epoch:
            on_epoch(report)
    model.load_state_dict(best)
    return reports


class _Epochs:
    """All that an epoch needs: the batches, what is to be learned from them, and the optimizer."""

    def __init__(
        self,
        model: Recommender,
        split: Split,
        config: TrainConfig,
        *,
        teacher: Recommender | None,
        processes: Processes,
    ) -> None:
        self._model, self._config, self._processes = model, config, processes
        for scheme in (model.users, model.items):
            scheme.expect_training_from_nothing()  # as the paper's recipe does
        self.optimizer, self._has_equal_items = adam(model, config), False
        self._batches: Batches | Lists
        self._expected: nn.Module | None = None
        if teacher is not None and model.scores_are_products:
            self._batches = Lists(split, seed=config.seed, processes=processes)
            self.examples_per_epoch = self._batches.num_scores
            self._expected = ListVectors(teacher.eval(), split)
            self._loss = share_gradients(ListLoss(model, split), processes)
            return
        are_shared = config.shares_negatives(scores_are_products=model.scores_are_products)
        num_negatives = config.negatives(are_shared=are_shared)
        self.examples_per_epoch = split.train.num_actions * (1 + num_negatives)
        self._batches = Batches(
            split.train,
            batch_size=config.batch_size,
            num_negatives=num_negatives,
            num_items=split.num_known_items,
            seed=config.seed,
            rank=processes.rank,
            world_size=processes.world_size,
            is_shared=are_shared,
            by_popularity=config.popularity,
            whole_users=config.whole_users,
        )
        self._has_equal_items = are_shared and config.similarity == "cosine"
        if self._has_equal_items:
            model.make_items_equally_long()  # a model that cannot do it is refused before it is trained
        self._expected = None if teacher is None else _Scores(teacher.eval(), split)
        self._loss = share_gradients(_Loss(model, split, config), processes)

    def train(self, epoch: int, on_batch: OnBatch | None) -> tuple[float, float] | None:
        """Go over the data once. Returns the mean loss and the seconds; None if it was stopped."""
        self._model.train()
        device, count = next(self._model.parameters()).device, len(self._batches)
        start, total = time.perf_counter(), torch.zeros((), device=device)
        interrupted = False
        try:
            each: Iterator[Batch | ListBatch] = prefetch(self._batches.epoch(epoch))
            for index, batch in enumerate(batch.to(device) for batch in each):
                _set_rate(self.optimizer, self._config, (epoch * count + index) / (self._config.epochs * count))
                with on_idle_cores():
                    loss = self._step(batch)
                total += loss
                if on_batch:
                    on_batch(epoch, index + 1, count, float(loss))
        except KeyboardInterrupt:
            interrupted = True
        if agree_to_stop(interrupted, self._processes):
            return None
        if self._has_equal_items:
            self._model.make_items_equally_long()
        seconds = time.perf_counter() - start
        average_buffers(self._model, self._processes)
        return float(total) / count, seconds

    def _step(self, batch: Batch | ListBatch) -> Tensor:
        """Learn from a batch. Returns its loss."""
        self.optimizer.zero_grad()
        with torch.no_grad():
            expected = None if self._expected is None else self._expected(batch)
        loss: Tensor = self._loss(batch, expected)
        torch.autograd.backward(loss)
        self.optimizer.step()
        return loss.detach()


class Validation:
    """Measures on the validation data, for as many users as take a second or so: the same for every such model."""

    def __init__(self, model: Recommender, split: Split, *, deciding: str = "auc") -> None:
        known_only = not model.answers_new_ids
        self._split, self._metrics = split, sorted({"auc", deciding})
        self._sample = draw_sample(split, on="validation", max_pairs=model.pairs_per_second, known_only=known_only)
        popularity = measure_on_sample(self._sample, popularity_scores(split.train), split, metrics=[deciding])
        self.level_of_popularity = popularity[deciding] + popularity.errors.get(deciding, 0.0)
        """What popularity has, and one standard error more. A model above it has learned the tastes of users."""

    def measure(self, score: Scorer) -> dict[str, float]:
        """The AUC of these scores, and the measure that decides."""
        return measure_on_sample(self._sample, score, self._split, metrics=self._metrics).means


def adam(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimizer of every training on data."""
    return torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True)


class _Scores(nn.Module):
    """The scores of a batch, as its loss is given them."""

    def __init__(self, model: Recommender, split: Split) -> None:
        super().__init__()
        self.model, self._inputs = model, ModelInputs.of(model, split.train)

    def forward(self, batch: Batch) -> Tensor:
        return self.model.score_distinct(*self._inputs.of_batch(batch))


class _Loss(_Scores):
    """The loss of a batch, as a module of its own so that DistributedDataParallel can wrap it."""

    def __init__(self, model: Recommender, split: Split, config: TrainConfig) -> None:
        super().__init__(model, split)
        self._loss, self._similarity = LOSSES[config.loss], config.similarity
        self._temperature = config.temperature_for(split.actions_per_id)

    def forward(self, batch: Batch, expected: Tensor | None) -> Tensor:  # type: ignore[override]
        if batch.shared is None:
            return self._loss(super().forward(batch), expected, batch.weight)
        own: dict[str, Any] = {"temperature": self._temperature, "similarity": self._similarity}
        return shared_softmax(self.model, self._inputs, batch, **own)


def _set_rate(optimizer: torch.optim.Optimizer, config: TrainConfig, progress: float) -> None:
    share = one_cycle(progress) if config.schedule == "one-cycle" else 1.0
    for group in optimizer.param_groups:
        group["lr"] = config.learning_rate * share


def _copy_weights(model: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items()}


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
