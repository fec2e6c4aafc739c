"""The training loop, from the first batch to the best model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.splits import Split
from ..kernels.resources import keeping_freed_memory
from .batches import Batches, prefetch
from .distributed import Processes, agree_to_stop, average_buffers, share_gradients
from .evaluation import measure_on_sample
from .models import Recommender
from .ranking import draw_sample
from .scoring import ModelInputs, Scorer, model_scores, popularity_scores, what_happened, what_is_expected
from .training import EpochReport, Journal, TrainConfig, has_ended

OnBatch = Callable[[int, int, int, float], None]
"""Is told the epoch, how many of how many batches are done, and the loss of the last."""
OnEpoch = Callable[[EpochReport], None]


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

    The loss is the binary cross-entropy on each action and its sampled negatives. After each epoch, the AUC on the
    validation actions decides which weights are kept and when to stop. With a `teacher`, a trained model of the same
    ids, the targets are what it expects. With `may_keep_start`, the weights at the start compete too. Ctrl-C stops
    after the batch at hand and keeps the best so far. `on_batch` and `on_epoch` are for showing progress.
    """
    epochs = _Epochs(model, split, config, teacher=teacher, processes=processes)
    validation = Validation(model, split)
    best_auc = validation.auc(model_scores(model, split)) if may_keep_start else 0.0
    best = _copy_weights(model)
    reports, state = journal.resume() if journal else ([], {})
    if reports:
        _restore(state, model, epochs.optimizer, best)
        best_auc = max(best_auc, *(report.validation_auc for report in reports))
    for epoch in range(len(reports), config.epochs):
        if reports and reports[-1].has_ended:
            break
        trained = epochs.train(epoch, on_batch)
        if trained is None:
            break  # an epoch cut short is not counted: resuming repeats it and ends where an undisturbed run would
        loss, seconds = trained
        auc = validation.auc(model_scores(model, split))
        aucs = [*(earlier.validation_auc for earlier in reports), auc]
        report = EpochReport(
            epoch=epoch,
            loss=loss,
            validation_auc=auc,
            seconds=seconds,
            examples_per_second=split.train.num_actions * (1 + config.num_negatives) / seconds,
            is_best=auc > best_auc,
            has_ended=has_ended(aucs, config.patience, floor=validation.level_of_popularity),
        )
        reports.append(report)
        if report.is_best:
            best_auc, best = auc, _copy_weights(model)
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
        self._inputs = ModelInputs.of(model, split.train)
        self._batches = Batches(
            split.train,
            batch_size=config.batch_size,
            num_negatives=config.num_negatives,
            num_items=split.num_known_items,
            seed=config.seed,
            rank=processes.rank,
            world_size=processes.world_size,
        )
        self._targets = what_happened if teacher is None else what_is_expected(teacher.eval(), split)
        self._loss = share_gradients(_Loss(model), processes)
        self.optimizer = adam(model, config)

    def train(self, epoch: int, on_batch: OnBatch | None) -> tuple[float, float] | None:
        """Go over the data once. Returns the mean loss and the seconds; None if it was stopped."""
        self._model.train()
        device, count = next(self._model.parameters()).device, len(self._batches)
        start, total = time.perf_counter(), torch.zeros((), device=device)
        interrupted = False
        try:
            for index, batch in enumerate(batch.to(device) for batch in prefetch(self._batches.epoch(epoch))):
                _set_rate(self.optimizer, self._config, (epoch * count + index) / (self._config.epochs * count))
                self.optimizer.zero_grad()
                loss = self._loss(*self._inputs.of_batch(batch), self._targets(batch), batch.weight)
                loss.backward()
                self.optimizer.step()
                total += loss.detach()
                if on_batch:
                    on_batch(epoch, index + 1, count, float(loss.detach()))
        except KeyboardInterrupt:
            interrupted = True
        if agree_to_stop(interrupted, self._processes):
            return None
        seconds = time.perf_counter() - start
        average_buffers(self._model, self._processes)
        return float(total) / count, seconds


class Validation:
    """The validation AUC, on as many users as take a second or so: the same ones for every model of this kind."""

    def __init__(self, model: Recommender, split: Split) -> None:
        known_only = not model.answers_new_ids
        self._split = split
        self._sample = draw_sample(split, on="validation", max_pairs=model.pairs_per_second, known_only=known_only)
        popularity = measure_on_sample(self._sample, popularity_scores(split.train), split, metrics=["auc"])
        self.level_of_popularity = popularity.auc + popularity.errors.get("auc", 0.0)
        """The AUC of popularity and one standard error more. A model above it has learned the tastes of users."""

    def auc(self, score: Scorer) -> float:
        """The AUC of these scores."""
        return measure_on_sample(self._sample, score, self._split, metrics=["auc"]).auc


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


def _set_rate(optimizer: torch.optim.Optimizer, config: TrainConfig, progress: float) -> None:
    """One cycle: up from a tenth during the first tenth, then down along a cosine to nearly nothing."""
    share = 1.0
    if config.schedule == "one-cycle":
        share = 0.1 + 9 * progress if progress < 0.1 else (1 + math.cos(math.pi * (progress - 0.1) / 0.9)) / 2
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
