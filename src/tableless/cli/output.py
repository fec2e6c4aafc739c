"""What a person sees: a bar while a model is trained, and then its results as a table.

The bar goes to standard error, so that the output can be piped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from typing_extensions import Self

from ..data.splits import Split
from ..embedding.fit_progress import FitProgress
from ..recommender.evaluation import METRICS
from ..recommender.progress import epoch_in_words, fit_in_words, run_in_words, split_in_words
from ..recommender.streaming import StreamReport
from ..recommender.training import EpochReport
from .app import as_typed

if TYPE_CHECKING:
    from rich.table import Table


_SECONDS_BETWEEN_LINES = 30  # of a fit, where no bar can be drawn


class ProgressBar:
    """A progress bar with epoch, loss, validation AUC, examples a second and time left; in a fit with what is lost."""

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
        self._last_line = 0.0
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

    def on_fit(self, doing: str, step: FitProgress) -> None:
        """Move the bar. Where no bar can be drawn, as in a log, leave a line behind from time to time."""
        if step.message:
            self._console.print(step.message, highlight=False)
        if not self._console.is_terminal:
            self._leave_line(fit_in_words(doing, step), is_first=step.done == 1)
        note = f"{step.error:.1%} unexplained"
        self._bar.update(self._task, description=doing, completed=step.done, total=step.total, note=note)

    def _leave_line(self, words: str, *, is_first: bool) -> None:
        now = time.monotonic()
        if is_first:
            self._last_line = now
        elif now >= self._last_line + _SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._console.print(words, highlight=False)

    def on_stream(self, report: StreamReport) -> None:
        """Show how far the stream is."""
        note = f"loss {report.loss:.4f}  AUC of late {report.recent_auc:.4f}"
        self._bar.update(self._task, description="actions", completed=report.num_actions, note=note)

    def on_epoch(self, report: EpochReport) -> None:
        """Leave a line behind."""
        self._console.print(epoch_in_words(report), highlight=False)


_SIZES = {
    "bytes": "bytes of the embeddings",
    "bytes_per_id": "  for each known id",
    "embedding_parameters": "parameters of the embeddings",
    "num_parameters": "  of the whole model",
    "epochs": "epochs of the last stage",
    "seconds": "seconds",
}


def print_results(results: Mapping[str, Any]) -> None:
    """The measured results as a table, and what they rest on."""
    Console().print(_render_results(results))
    for remark in _remarks(results):
        print(remark)


def _render_results(results: Mapping[str, Any]) -> Table:
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


def _remarks(results: Mapping[str, Any]) -> Iterator[str]:
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
    if "best_epoch" in results and "validation" in results:
        yield _kept(results)
    if results.get("capped"):
        yield "Training ended at its limit of epochs, and not by itself: more may be better (--epochs)."
    if results.get("warning"):
        yield f"Warning: {as_typed(results['warning'])}"


def _kept(results: Mapping[str, Any]) -> str:
    """Which model was kept, and what its validation AUC was measured on."""
    best, validation = results["best_epoch"], results["validation"]
    kept = (
        "the fitted one, since no epoch of the last stage was better" if best is None else f"that of epoch {best + 1}"
    )
    users = f"{validation['evaluated']:,} of {validation['held_out']:,} users"
    return f"The model is {kept}. Its validation AUC is on {users}; the lines of epochs may be on fewer."
