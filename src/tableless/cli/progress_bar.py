"""What a person sees while a model is trained. It goes to standard error, so that the output can be piped."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from typing_extensions import Self

from ..data.splits import Split
from ..recommender.progress import epoch_in_words, run_in_words, split_in_words
from ..recommender.streaming import StreamReport
from ..recommender.training import EpochReport


class ProgressBar:
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
