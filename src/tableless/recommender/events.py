"""Progress: what a program is told while it waits. (`progress.py` has what a person sees.)"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .progress import epoch_in_words, run_in_words
from .training import EpochReport


@dataclass(frozen=True)
class Progress:
    """One thing that happened during `tableless.train` or `tableless.compare`.

    Attributes:
        stage: What happened. `"note"`: a remark. `"reading"`: some more rows were read. `"batch"`: a training step
            ended. `"epoch"`: an epoch ended and was validated. `"run"`: a run of a comparison begins.
        message: The same in words, for people.
        done: How many rows, batches of this epoch, epochs or runs are done; None for a remark.
        total: How many there are; None where that is not known. Training may end before its last epoch.
        loss: The loss of the batch, or the mean loss of the epoch.
        validation_auc: The validation AUC after the epoch.

    Example:
        ```python
        import tableless


        def show(progress: tableless.Progress) -> None:
            if progress.stage == "epoch":
                print(progress.message)


        tableless.train("world:users=60,items=30,actions=900", scheme="full", progress=show)
        ```
    """

    stage: Literal["note", "reading", "batch", "epoch", "run"]
    message: str
    done: int | None = None
    total: int | None = None
    loss: float | None = None
    validation_auc: float | None = None


@dataclass(frozen=True)
class Listener:
    """Turns the several callbacks of reading, training and comparing into one."""

    tell: Callable[[Progress], None]

    def on_note(self, message: str, done: int | None = None, total: int | None = None) -> None:
        """A remark, or how far reading is."""
        self.tell(Progress("note" if done is None else "reading", message, done, total))

    def on_batch(self, epoch: int, batch: int, total: int, loss: float) -> None:
        """A batch of a training."""
        self.tell(Progress("batch", f"epoch {epoch + 1}  loss {loss:.4f}", batch, total, loss))

    def on_epoch(self, report: EpochReport) -> None:
        """An epoch of a training."""
        self.tell(
            Progress(
                "epoch",
                epoch_in_words(report),
                report.epoch + 1,
                loss=report.loss,
                validation_auc=report.validation_auc,
            )
        )

    def on_run(self, index: int, total: int, line: Mapping[str, Any]) -> None:
        """A run of a comparison that begins."""
        self.tell(Progress("run", run_in_words(line), index, total))
