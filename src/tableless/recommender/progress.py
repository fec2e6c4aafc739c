"""Progress: what a program is told while it waits, and the same in words. `cli/output.py` shows it to people."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..data.config import DataConfig
from ..data.loading import load_split
from ..data.splits import Split
from ..embedding.fit_progress import FitProgress, time_in_words
from .training import EpochReport

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """One thing that happened during `tableless.train` or `tableless.compare`.

    Attributes:
        stage: What happened. `"note"`: a remark. `"reading"`: some more rows were read. `"batch"`: a training step
            ended. `"epoch"`: an epoch ended and was validated. `"fit"`: a step of the fit to a table ended. `"run"`: a
            run of a comparison begins. `"warning"`: the results are poor, and what to try.
        message: The same in words, for people.
        done: How many rows, batches of this epoch, epochs, steps of the fit or runs are done; None for a remark.
        total: How many there are; None where that is not known. Training may end before its last epoch, a fit
            before its last step.
        loss: The loss of the batch, or the mean loss of the epoch. In the fit, the share of the table's variance that
            is unexplained.
        validation_auc: The validation AUC after the epoch.
        seconds_left: In the fit, how long the remaining steps of this side will take.

    Example:
        ```python
        import tableless


        def show(progress: tableless.Progress) -> None:
            if progress.stage == "epoch":
                print(progress.message)


        tableless.train("world:users=60,items=30,actions=900", scheme="full", progress=show)
        ```
    """

    stage: Literal["note", "reading", "batch", "epoch", "fit", "run", "warning"]
    message: str
    done: int | None = None
    total: int | None = None
    loss: float | None = None
    validation_auc: float | None = None
    seconds_left: float | None = None


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

    def on_fit(self, doing: str, step: FitProgress) -> None:
        """A step of the fit to a table. What it has to say to people is a remark."""
        if step.message:
            self.on_note(step.message)
        words = fit_in_words(doing, step)
        self.tell(Progress("fit", words, step.done, step.total, step.error, seconds_left=step.seconds_left))

    def of_training(self) -> dict[str, Any]:
        """What `train_and_measure` calls."""
        return {
            "on_note": self.on_note,
            "on_batch": self.on_batch,
            "on_epoch": self.on_epoch,
            "on_fit": self.on_fit,
        }

    def on_results(self, results: Mapping[str, Any]) -> None:
        """The results of a training. Only those that are poor are worth a word."""
        if warning := results.get("warning"):
            self.tell(Progress("warning", warning))

    def on_run(self, index: int, total: int, line: Mapping[str, Any]) -> None:
        """A run of a comparison that begins."""
        self.tell(Progress("run", run_in_words(line), index, total))


def log_warnings(progress: Progress) -> None:
    """What is done with progress unless somebody asks for it: warnings are logged, and so seen where nothing is set."""
    if progress.stage == "warning":
        _log.warning(progress.message)


def load_and_describe(config: DataConfig, *, cache_dir: str | os.PathLike[str] | None, listener: Listener) -> Split:
    """The data, ready to train on. The listener is told how far reading is, and how much there is."""
    directory = None if cache_dir is None else Path(cache_dir)
    split = load_split(config, cache_dir=directory, report=listener.on_note)
    listener.on_note(split_in_words(split))
    return split


def split_in_words(split: Split) -> str:
    """How much data there is, on one line."""
    train = split.train
    return (
        f"{train.num_users:,} users, {train.num_items:,} items, {train.num_actions:,} actions to train on, "
        f"{len(split.validation_users):,} held out for validation, {len(split.test_users):,} for test"
    )


def run_in_words(line: Mapping[str, Any]) -> str:
    """Which run of a comparison it is, on one line."""
    model = line["model"]
    return f"{model['scheme']} {model['budget']} {model['backbone']} seed {line['train']['seed']}"


def epoch_in_words(report: EpochReport) -> str:
    """What an epoch has brought, on one line."""
    best = "  best so far" if report.is_best else ""
    selected = "" if report.selected is None else f"  selected by {report.selected:.4f}"
    return (
        f"epoch {report.epoch + 1:3}  loss {report.loss:.4f}  validation AUC {report.validation_auc:.4f}{selected}  "
        f"{report.examples_per_second:,.0f} examples/s{best}"
    )


def fit_in_words(doing: str, step: FitProgress) -> str:
    """How far a fit is, on one line."""
    left = time_in_words(step.seconds_left)
    return f"{doing}: step {step.done:,} of {step.total:,}, {step.error:.1%} unexplained, {left} left"
