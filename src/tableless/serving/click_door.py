"""The Python door to click models: `train_clicks`, `load_clicks`, and the model that they return."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.clicks.columns import parse_columns
from ..data.clicks.reading import ClickConfig, read_clicks
from ..data.clicks.split import split_clicks
from ..data.clicks.table import to_inputs
from ..data.config import RowRules
from ..data.in_memory import Data, as_path, temporary_folder
from ..embedding.budget import Budget
from ..recommender.clicks.click_runs import (
    StoredClickRun,
    evaluate_click_run,
    read_click_run,
    train_and_measure_clicks,
)
from ..recommender.clicks.click_training import ClickEpoch, ClickWatchers
from ..recommender.clicks.sizing import ClickModelConfig
from ..recommender.progress import Listener, Progress, log_warnings
from ..recommender.run_directory import RunDirectory
from ..recommender.training import TrainConfig
from .hub import PathName

_BATCH = 16_384


class TrainedClickModel:
    """A trained click model, ready to answer: columns of raw values in, chances out. Thread-safe.

    `tableless.train_clicks` and `tableless.load_clicks` make one.
    """

    def __init__(self, run: StoredClickRun) -> None:
        self.run = run
        self.directory = run.files.path
        self.config = run.config
        self.columns = run.model.columns
        """What the model is told of each row, with the kind of each column."""
        self.trained_on: str | None = None
        """The file that `train_clicks` read; None for a model that was loaded."""
        self._model = run.model.eval()

    @property
    def results(self) -> dict[str, Any]:
        """What was measured after training; empty if the run has no results."""
        return dict(self.run.results)

    @property
    def facts(self) -> dict[str, Any]:
        """What the model is, as plain values."""
        results = self.results
        sizes = self._model.sizes(sum(results.get("values", {}).values()))
        return {
            "kind": "clicks",
            "backbone": self.config["model"]["backbone"],
            "scheme": self.config["budget"]["scheme"],
            "embedding_dim": self._model.backbone.dim,
            "columns": [str(column).replace("`", "") for column in self.columns],
            "bytes": sizes["bytes"],
            "bytes_by_part": sizes["bytes_by_part"],
            "table_bytes": results.get("table_bytes"),
            "results": results,
        }

    def score(self, columns: Any) -> Tensor:
        """The logit of a click for each row, [n]. `columns` is a frame, or a mapping of lists; None is missing."""
        return self.score_inputs(to_inputs(columns, self.columns))

    def probabilities(self, columns: Any) -> Tensor:
        """How likely a click is, for each row [n]."""
        return torch.sigmoid(self.score(columns))

    def score_inputs(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The same as `score` for values that are ids and numbers already."""
        count = len(next(iter(inputs.values())))
        with torch.inference_mode():
            parts = [
                self._model({name: values[first : first + _BATCH] for name, values in inputs.items()})
                for first in range(0, count, _BATCH)
            ]
        return torch.cat(parts).clone() if parts else torch.empty(0)

    def save(self, directory: PathName) -> None:
        """Keep the run in a directory that holds none."""
        self.run.files.copy_to(RunDirectory(directory))


def load_clicks(run: PathName) -> TrainedClickModel:
    """A click model that answers, from its run directory.

    Args:
        run: A run directory that `tableless train --columns …` or `tableless.train_clicks` has written.

    Returns:
        The model. Its `score` and `probabilities` take columns of raw values.

    Raises:
        ValueError: The directory holds no click model, or a file of it is damaged.

    Example:
        ```python
        import tableless

        model = tableless.load_clicks("runs/clicks")
        print(model.probabilities({"user": [42], "item": ["a book"]}))
        ```
    """
    return TrainedClickModel(read_click_run(Path(run)))


def train_clicks(
    data: Data,
    *,
    columns: str | Iterable[str] | Mapping[str, str | None],
    label: str | None = None,
    item_col: str | None = None,
    item_columns: Iterable[str] = (),
    backbone: str = ClickModelConfig.backbone,
    scheme: str = ClickModelConfig.scheme,
    budget: Budget = ClickModelConfig.budget,
    column_schemes: Mapping[str, str] | None = None,
    embedding_dim: int = ClickModelConfig.embedding_dim,
    config: TrainConfig | None = None,
    time_col: str | None = None,
    drop_missing: bool = False,
    min_rating: float | None = None,
    date_format: str | None = None,
    data_dir: PathName | None = None,
    out: PathName | None = None,
    device: str = "auto",
    progress: Callable[[Progress], None] | None = None,
) -> TrainedClickModel:
    """Train a model that says how likely a click is, from several columns, as `tableless train --columns` does.

    Args:
        data: The rows: a frame (polars, pandas), an Arrow table, a dict of columns, or the path of a file.
        columns: What the model is told: names, or a mapping of names to what they are. That is `"integer"` or
            `"string"` (ids), `"number"` (enters as it is), `"buckets"` (a number by the bucket that it falls into),
            `"list"`, or a separator such as `"|"` for lists that are text; None: the values tell. As text,
            `"user,genres:|,price:number"`.
        label: The column of the answers, 0 or 1; with `min_rating`, a rating. Without it every row is an action, and
            for each some items are drawn that were not chosen.
        item_col: Without a label: the column that items are drawn for; guessed from common names.
        item_columns: Without a label: the columns that an item brings with it, such as its author.
        backbone: `"fm"`, `"deepfm"`, `"dcn"` (version 2) or `"dlrm"`.
        scheme: The scheme of columns with more than 1,000 values, one of `tableless.SCHEMES`, or `"joint"`: one
            network for them all. Columns with fewer values stay tables.
        budget: The size of all columns together: a share of the bytes of all their tables in float32 (`"1/16"`), or
            memory (`"64MB"`).
        column_schemes: Columns with schemes of their own, and their bytes if they shall not have their share:
            `{"user": "coded", "item": "dhe:64KB"}`.
        embedding_dim: Dimensions of a vector.
        config: How to train; `TrainConfig()` unless given.
        time_col: The column of the times: the last tenth is then the test; guessed from common names. `""`: there are
            none, and the test rows are drawn.
        drop_missing: Drop rows without a label or a time; else they are refused. Other values may be missing.
        min_rating: The label is a rating, and this or more is a 1.
        date_format: How dates are written: `"dmy"`, `"mdy"`, or a format such as `"%m/%d/%Y %H:%M"`.
        data_dir: Where known datasets are looked for, and downloaded to.
        out: A run directory to write. Without it, the run is in a temporary directory that is deleted together with the
            model; `model.save` keeps it.
        device: `"auto"`, `"cpu"` or `"cuda"`.
        progress: Is called with a `Progress` for every remark, batch and epoch, and for a warning if one column alone
            says as much as the model. Without it, that warning is logged (`logging`).

    Returns:
        The trained model. `results` has AUC and log loss on the test rows, each with its standard error.

    Raises:
        ValueError: An argument or the data cannot be used; the message says what to do.

    Example:
        ```python
        import tableless

        rows = range(600)
        shown = {"user": [row % 37 for row in rows], "device": [["phone", "tv"][row % 2] for row in rows]}
        clicks = {**shown, "clicked": [int(row % 37 < 20) for row in rows]}
        model = tableless.train_clicks(
            clicks, columns="user,device", label="clicked", embedding_dim=4, config=tableless.TrainConfig(epochs=3)
        )
        print(model.results["auc"], model.probabilities({"user": [3, 30], "device": ["tv", None]}))
        ```
    """
    model_config = ClickModelConfig(backbone, scheme, str(budget), embedding_dim, dict(column_schemes or {}))
    listener = Listener(progress or log_warnings)
    with ExitStack() as stack:
        folder = temporary_folder(stack)
        read = ClickConfig(
            as_path(data, folder, name="data"),
            parse_columns(columns),
            label,
            item_col,
            tuple(item_columns),
            time_col,
            RowRules(drop_missing, None, min_rating, date_format),
            None if data_dir is None else str(data_dir),
        )
        directory = folder / "run" if out is None else Path(out)
        recorded_as = Path(read.data).name if Path(read.data).parent == folder else None
        _train(read, model_config, config or TrainConfig(), directory, listener, recorded_as=recorded_as, device=device)
        model = load_clicks(directory)
        model.trained_on = read.data
        weakref.finalize(model, stack.pop_all().close)
    return model


def evaluate_clicks(
    model: TrainedClickModel | PathName, test: Data | None, data: Data | None, data_dir: PathName | None
) -> dict[str, Any]:
    """Measure a click model again: on its own test rows, or on all rows of `test`. See `tableless.evaluate`."""
    with ExitStack() as stack:
        folder = temporary_folder(stack)
        known, run = (
            (model.trained_on, model.directory) if isinstance(model, TrainedClickModel) else (None, Path(model))
        )
        return evaluate_click_run(
            run,
            data=known if data is None else as_path(data, folder, name="data"),
            test=None if test is None else as_path(test, folder, name="test"),
            data_dir=None if data_dir is None else str(data_dir),
        )


def _train(
    read: ClickConfig,
    model_config: ClickModelConfig,
    train_config: TrainConfig,
    directory: Path,
    listener: Listener,
    *,
    recorded_as: str | None,
    device: str,
) -> None:
    """Train and measure, and leave the run in a directory."""
    split = split_clicks(read_clicks(read, report=listener.on_note), seed=train_config.seed)
    watchers = ClickWatchers(listener.on_note, listener.on_batch, partial(_tell_epoch, listener))
    settings: dict[str, Any] = {"out": directory, "recorded_as": recorded_as, "device": device, "watchers": watchers}
    _, results = train_and_measure_clicks(read, model_config, train_config, split, **settings)
    listener.on_results(results)


def _tell_epoch(listener: Listener, report: ClickEpoch) -> None:
    listener.tell(
        Progress("epoch", str(report), report.epoch + 1, loss=report.loss, validation_auc=report.validation_auc)
    )
