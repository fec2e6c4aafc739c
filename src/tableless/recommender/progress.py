"""What a person sees while it trains, and the results at the end. On standard error, so that output can be piped."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from .splits import Split
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
        train = split.train
        self.tell(
            f"{train.num_users:,} users, {train.num_items:,} items, {train.num_actions:,} actions to train on, "
            f"{len(split.validation_users):,} held out for validation, {len(split.test_users):,} for test"
        )

    def on_run(self, index: int, total: int, line: Mapping[str, Any]) -> None:
        """Say which run of a comparison begins."""
        model = line["model"]
        name = f"{model['scheme']} {model['budget']} {model['backbone']} seed {line['train']['seed']}"
        self._bar.update(self._task, description=name, completed=index, total=total, note="")

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
        best = "  best so far" if report.is_best else ""
        self._console.print(
            f"epoch {report.epoch + 1:3}  loss {report.loss:.4f}  validation AUC {report.validation_auc:.4f}  "
            f"{report.examples_per_second:,.0f} examples/s{best}",
            highlight=False,
        )


def render_results(results: Mapping[str, Any]) -> Table:
    """The figures of one model."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, label in _LABELS.items():
        if results.get(name) is not None:
            value = results[name]
            table.add_row(label, f"{value:.4f}" if isinstance(value, float) and name != "seconds" else f"{value:,}")
    for group, auc in results.get("auc_by_group", {}).items():
        table.add_row(f"test AUC, {group}{'' if 'new' in group else ' items'}", f"{auc:.4f}")
    if 0 < results.get("evaluated", 0) < results.get("held_out", 0) - results.get("unanswered", 0):
        table.caption = f"measured on a sample of {results['evaluated']:,} of {results['held_out']:,} held-out actions"
    if results.get("unanswered"):
        table.caption = (
            f"{results['unanswered']:,} of {results['held_out']:,} test actions have a user or an item that was not in "
            "training: this scheme can't answer for them (one that is open to new ids, such as dhe, can)"
        )
    return table


_LABELS = {
    "auc": "test AUC",
    "popularity_auc": "  popularity alone",
    "best_possible_auc": "  best possible in this world",
    "validation_auc": "validation AUC",
    "hr@10": "HR@10",
    "ndcg@10": "NDCG@10",
    "num_parameters": "parameters",
    "embedding_parameters": "  of the embeddings",
    "epochs": "epochs",
    "seconds": "seconds",
}
