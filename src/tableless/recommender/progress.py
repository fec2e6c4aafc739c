"""What a person sees while it trains, and the results at the end. On standard error, so that output can be piped.

Progress: what a program is told while it waits. (`progress.py` has what a person sees.)"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import Self

from ..data.splits import Split
from .evaluation import METRICS
from .streaming import StreamReport
from .training import EpochReport

if TYPE_CHECKING:
    from rich.table import Table


class TrainingProgress:
    """A progress bar with epoch, loss, validation AUC, examples a second and time left."""

    def __init__(self, *, quiet: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True, quiet=quiet)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=quiet,
        )
        self._task = self._bar.add_task("preparing", total=None, note="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def tell(self, message: str, done: int | None = None, total: int | None = None) -> None:
        """Say what is being done, with how much of it is done where that is known."""
        if done is None:
            self._console.print(message, highlight=False)
        self._bar.update(self._task, description=message if done is not None else "", completed=done, total=total)

    def describe(self, split: Split) -> None:
        """Say what the data is."""
        self.tell(split_in_words(split))

    def on_run(self, index: int, total: int, line: Mapping[str, Any]) -> None:
        """Say which run of a comparison begins."""
        self._bar.update(self._task, description=run_in_words(line), completed=index, total=total, note="")

    def on_batch(self, epoch: int, batch: int, total: int, loss: float) -> None:
        """Move the bar."""
        self._bar.update(
            self._task, description=f"epoch {epoch + 1}", completed=batch, total=total, note=f"loss {loss:.4f}"
        )

    def on_stream(self, report: StreamReport) -> None:
        """Show how far the stream is."""
        note = f"loss {report.loss:.4f}  AUC of late {report.recent_auc:.4f}"
        self._bar.update(self._task, description="actions", completed=report.num_actions, note=note)

    def on_epoch(self, report: EpochReport) -> None:
        """Leave a line behind."""
        self._console.print(epoch_in_words(report), highlight=False)


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
    return (
        f"epoch {report.epoch + 1:3}  loss {report.loss:.4f}  validation AUC {report.validation_auc:.4f}  "
        f"{report.examples_per_second:,.0f} examples/s{best}"
    )


def render_results(results: Mapping[str, Any]) -> Table:
    """The figures of one model."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, metric in METRICS.items():
        if name in results:
            table.add_row(f"test {metric.label}", _with_error(results, name))
            if name in results.get("popularity", {}):
                table.add_row("  popularity alone", _with_error(results["popularity"], name))
            if name in results.get("best_possible", {}):
                table.add_row("  best possible in this world", _with_error(results["best_possible"], name))
    for name, metric in METRICS.items():
        if name in results.get("validation", {}):
            table.add_row(f"validation {metric.label}", _with_error(results["validation"], name))
    for group, auc in results.get("auc_by_group", {}).items():
        table.add_row(f"test AUC, {group}{'' if 'new' in group else ' items'}", f"{auc:.4f}")
    for name, label in _SIZES.items():
        if results.get(name) is not None:
            table.add_row(label, f"{results[name]:,}")
    return table


def _with_error(results: Mapping[str, Any], name: str) -> str:
    """A mean and its standard error over users, where there is one."""
    error = results.get(f"{name}_se")
    return f"{results[name]:.4f}" + ("" if error is None else f" ± {error:.4f}")


def remarks(results: Mapping[str, Any]) -> Iterator[str]:
    """What the figures alone do not say."""
    if "evaluated" in results:
        users = f"{results['evaluated']:,} of {results['held_out']:,} users with held-out actions"
        yield f"Measured on {users}; ± is the standard error over users."
    if results.get("auc_items"):
        yield f"The AUC is against {results['auc_items']:,} items drawn for each user, the rest over all items."
    if results.get("unanswered"):
        yield (
            f"{results['unanswered']:,} test actions have a user or an item that was not in training: this scheme "
            "can't answer for them (one that is open to new ids, such as dhe, can)."
        )
    if results.get("capped"):
        yield "Training ended at its limit of epochs, and not by itself: more may be better (--epochs)."


_SIZES = {
    "num_parameters": "parameters",
    "embedding_parameters": "  of the embeddings",
    "epochs": "epochs of the last stage",
    "seconds": "seconds",
}


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
