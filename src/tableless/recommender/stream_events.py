"""A stream of events that may never end: lines are read as they come, and a checkpoint is written every minute.

A start that finds a checkpoint goes on from there. Of files, no event is then lost or learned twice, whenever the
process was killed. What came by standard input cannot be read again, so it is kept in a journal until the next
checkpoint; only the batch that had not been written there is lost.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from ..data.config import DataConfig
from ..data.reading.events import EventBatch, EventReader
from ..data.reading.line_sources import STDIN, LineSource, SourceLine, SourcePlace
from ..files.whole import load_tensors, save_tensors
from .models import Recommender
from .run_directory import RunDirectory, item_list
from .stream_learner import StreamLearner
from .stream_options import StreamOptions
from .stream_state import restore, state_of
from .streaming import Running, StreamReport, learn_batch

Describe = Callable[[Recommender, Mapping[str, str]], dict[str, Any]]


class EventRun:
    """A learner, what it reads, and the run directory that it is kept in (None: nowhere).

    `describe` makes the config of the run from the model and the kinds of ids.
    """

    def __init__(
        self, learner: StreamLearner, data: DataConfig, options: StreamOptions, *, out: str | None, describe: Describe
    ) -> None:
        self.learner = learner
        self.reader = EventReader(data.user_col, data.item_col, data.time_col)
        self.running = Running()
        self.report: StreamReport | None = None
        self._options, self._describe, self._source = options, describe, data.data
        self._files = None if out is None else RunDirectory(out)
        self._place: SourcePlace | None = None
        self._start()

    def _start(self) -> None:
        """From the checkpoint that is there, or from another run, or from nothing."""
        files, other = self._files, self._options.start_from
        if files is not None and files.stream_state.exists():
            meta = self._restore(files)
            if meta["source"] != self._source:
                raise ValueError(
                    f"{files.path} was learned from {meta['source']} and not from {self._source}; give that again, or "
                    f"another --out, and --from {files.path} to begin with what it has learned"
                )
            self._place = SourcePlace(**meta["place"])
            return
        if files is not None:
            files.require_free()
        if other is not None:
            if not RunDirectory(other).stream_state.exists():
                raise ValueError(f"{other} was not learned from a stream of events; --from takes a run that was")
            self._restore(RunDirectory(other))
            self.reader.counts.clear()

    def learn(self, *, size: int, on_batch: Callable[[StreamReport], None] | None = None) -> None:
        """Until the source ends."""
        self._learn_the_journal(size, on_batch)
        checkpoint_at = time.monotonic() + self._options.checkpoint_seconds
        source = LineSource(self._source, follow=self._options.follow, start=self._place)
        is_new = False
        for batch in self.reader.batches(source, size=size):
            if batch is not None:
                self._write_to_journal(batch)
                self._learn(batch, on_batch)
                is_new = True
            if is_new and time.monotonic() >= checkpoint_at:
                self.checkpoint()
                checkpoint_at, is_new = time.monotonic() + self._options.checkpoint_seconds, False
        self.checkpoint()

    def _learn(self, batch: EventBatch, on_batch: Callable[[StreamReport], None] | None) -> None:
        self._place = batch.place
        if len(batch.users):
            self.report = learn_batch(self.learner, batch.users, batch.items, self.running)
            if on_batch:
                on_batch(self.report)

    def _learn_the_journal(self, size: int, on_batch: Callable[[StreamReport], None] | None) -> None:
        """What came by standard input after the last checkpoint. A line that was cut short is left out."""
        if self._files is None or self._source != STDIN or not self._files.stream_journal.exists():
            return
        first, *texts = self._files.stream_journal.read_bytes().split(b"\n")[:-1] or [b"0"]
        before, done = int(first), self._place.offset if self._place else 0
        lines = [SourceLine(text, SourcePlace(offset=before + number)) for number, text in enumerate(texts, 1)]
        lines = lines[max(0, done - before) :]  # a kill may have come between the state and the end of the journal
        for start in range(0, len(lines), size):
            self._learn(self.reader.batch(lines[start : start + size]), on_batch)

    def _write_to_journal(self, batch: EventBatch) -> None:
        if self._files is None or self._source != STDIN:
            return
        journal = self._files.stream_journal
        texts = batch.lines if journal.exists() else [b"%d" % (batch.place.offset - len(batch.lines)), *batch.lines]
        with journal.open("ab") as opened:
            opened.write(b"".join(text + b"\n" for text in texts))

    def checkpoint(self) -> None:
        """Write the state, and then the model that is served. Each file appears whole or not at all."""
        if self._files is None or self.report is None:
            return
        reader, place = self.reader, self._place or SourcePlace()
        meta = {
            "source": self._source,
            "place": asdict(place),
            "kinds": reader.kinds,
            "counts": dict(reader.counts),
            "format": reader.format_state(),
            "running": self.running.state(),
            "config": asdict(self.learner.config),
        }
        state = state_of(self.learner)
        state["meta"] = torch.frombuffer(bytearray(json.dumps(meta).encode()), dtype=torch.uint8)
        if reader.recent:
            state["recent"] = torch.tensor(list(reader.recent))
        save_tensors(state, self._files.stream_state)
        self._files.stream_journal.unlink(missing_ok=True)  # what it held is in the state
        model = self.learner.model()
        config = self._describe(model, reader.kinds)
        items = item_list(self.learner.seen.values)
        self._files.write(config, model.state_dict(), items=items, results=self.results())

    def _restore(self, files: RunDirectory) -> dict[str, Any]:
        state = load_tensors(files.stream_state)
        meta: dict[str, Any] = json.loads(bytes(state["meta"].numpy()))
        if meta["config"] != asdict(self.learner.config):
            other = sorted(name for name, value in asdict(self.learner.config).items() if meta["config"][name] != value)
            raise ValueError(
                f"{files.path} was begun with other settings ({', '.join(other)}); give those again, or another --out"
            )
        restore(self.learner, state)
        self.reader.kinds, self.reader.counts = meta["kinds"], Counter(meta["counts"])
        self.reader.recent = dict.fromkeys(state["recent"].tolist()) if "recent" in state else {}
        self.reader.restore_format(meta["format"])
        self.running = Running(meta["running"])
        self.report = self.running.report()
        return meta

    def results(self) -> dict[str, Any]:
        """What is known so far."""
        report, learner = self.report, self.learner
        if report is None:
            raise ValueError("the stream was empty")
        return {
            **{"auc": report.auc, "recent_auc": report.recent_auc, "popular_auc": report.popular_auc},
            "actions": report.num_actions,
            "events": {"learned": report.num_actions, **self.reader.counts},
            "evictions": {"user": learner.users.evictions, "item": learner.items.evictions},
            "newest": self.reader.newest if np.isfinite(self.reader.newest) else None,
            "written": round(time.time(), 3),
        }
