"""The loop of tuning: its steps, its rate, and the best weights so far. `tuning.py` says what is tuned and how."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.idle_cores import on_idle_cores
from .drop_in import DropIn
from .fit_progress import FitReporter
from .model_calls import device_of, modes_kept, on_device


def one_cycle(progress: float) -> float:
    """The share of the highest rate: up from a tenth during the first tenth, then along a cosine to nearly nothing."""
    return 0.1 + 9 * progress if progress < 0.1 else (1 + math.cos(math.pi * (progress - 0.1) / 0.9)) / 2


class Steps:
    """One step after the other."""

    def __init__(
        self,
        student: nn.Module,
        teacher: nn.Module,
        call: Callable[[nn.Module, Any], Any],
        loss: Callable[[Any, Any, Any], Tensor],
        groups: list[dict[str, Any]],
        total: int,
    ) -> None:
        self.student, self.teacher, self.call, self.loss = student, teacher, call, loss
        self.optimizer, self.total, self.done = torch.optim.AdamW(groups, weight_decay=0.0), total, 0
        self.rates, self.device = [group["lr"] for group in groups], device_of(student)

    def step(self, batch: Any) -> float:
        """Learn from a batch. Returns its loss."""
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * one_cycle(min(1.0, self.done / self.total))
        batch = on_device(batch, self.device)
        with on_idle_cores(), torch.enable_grad():
            self.optimizer.zero_grad()
            with torch.no_grad():
                expected = self.call(self.teacher, batch)
            loss = self.loss(batch, self.call(self.student, batch), expected)
            if not loss.isfinite():
                raise FloatingPointError(
                    f"the loss is {loss.item()} after {self.done} steps; give a lower learning_rate, and look whether "
                    "the teacher's answers are finite"
                )
            if not loss.requires_grad:
                raise ValueError(
                    "the answers do not depend on the weights that are trained; give batches that use the replaced "
                    "tables, or weights='all'"
                )
            torch.autograd.backward(loss)
            self.optimizer.step()
        self.done += 1
        return float(loss.detach())


class Best:
    """The best weights so far, by the metric; without a metric, the last."""

    def __init__(
        self,
        student: nn.Module,
        trained: list[nn.Parameter],
        metric: Callable[[nn.Module], float] | None,
        patience: int | None,
    ) -> None:
        self._student, self._metric, self._patience = student, metric, patience
        # Only schemes are in training mode, so no other buffers change.
        buffers = [buffer for drop_in in drop_ins_of(student) for buffer in drop_in.buffers()]
        self._tensors: list[Tensor] = [*trained, *buffers]
        self.values = [] if metric is None else [measured(metric, student)]
        self.epoch, self._weights = 0, self._copy()

    def see(self, epoch: int) -> bool:
        """After an epoch. Returns whether to stop."""
        if self._metric is not None:
            self.values.append(measured(self._metric, self._student))
            if not self.values[-1] > self.values[self.epoch]:
                return self._patience is not None and epoch - self.epoch >= self._patience
        self.epoch, self._weights = epoch, self._copy()
        return False

    @torch.no_grad()
    def restore(self) -> None:
        """Give the student the best weights."""
        for tensor, value in zip(self._tensors, self._weights, strict=True):
            tensor.copy_(value)

    def _copy(self) -> list[Tensor]:
        return [tensor.detach().clone() for tensor in self._tensors]


def go_over(loop: Steps, batches: Iterable[Any], epochs: int, best: Best, reporter: FitReporter) -> tuple[float, ...]:
    """The mean loss of each epoch. Ctrl-C ends it, and the epoch at hand is not counted."""
    losses: list[float] = []
    try:
        for epoch in range(1, epochs + 1):
            own = []
            for batch in batches:
                own.append(loop.step(batch))
                reporter.on_step(loop.done, max(loop.total, loop.done), own[-1])
            if not own:
                raise ValueError(f"epoch {epoch} has no batches; give a list, or what can be gone over again")
            losses.append(sum(own) / len(own))
            if best.see(epoch):
                break
    except KeyboardInterrupt:
        pass
    finally:
        best.restore()
    return tuple(losses)


@torch.no_grad()
def measured(metric: Callable[[nn.Module], float], student: nn.Module) -> float:
    """What the metric says of the student as it will be used: in eval mode, without gradients."""
    with modes_kept(student):
        return float(metric(student.eval()))


def drop_ins_of(student: nn.Module) -> list[DropIn]:
    """A module for each scheme in the place of a table."""
    found = {id(module.scheme): module for module in student.modules() if isinstance(module, DropIn)}
    if not found:
        raise ValueError("no table of the student was replaced; call tableless.replace_embeddings(student) before")
    return list(found.values())
