"""The commands as functions, with the same results to the last digit (`compare` is in recommender/comparison.py)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from .data.config import DataConfig, FeatureConfig, FeatureUse, RowRules
from .data.in_memory import Data, as_path, data_configs, feature_config, temporary_folder
from .data.splits import Split
from .embedding.budget import Budget
from .recommender.clicks.click_runs import is_click_run, require_recommender
from .recommender.features import load_features
from .recommender.measurement import measure_run
from .recommender.progress import Listener, Progress, load_and_describe, log_warnings
from .recommender.run_directory import RunDirectory
from .recommender.runs import ModelConfig, train_and_measure
from .recommender.training import TrainConfig
from .serving.click_door import TrainedClickModel, evaluate_clicks
from .serving.export.exporting import ExportReport, export_run
from .serving.hub import PathName, find_run
from .serving.items import seen_in_data
from .serving.model import TrainedModel


def train(
    data: Data,
    *,
    scheme: str = ModelConfig.scheme,
    budget: Budget = ModelConfig.budget,
    new_ids: bool = ModelConfig.new_ids,
    backbone: str = ModelConfig.backbone,
    embedding_dim: int = ModelConfig.embedding_dim,
    options: Mapping[str, Any] | None = None,
    config: TrainConfig | None = None,
    item_features: Data | None = None,
    user_features: Data | None = None,
    features: FeatureUse = FeatureConfig.features,
    test: Data | None = None,
    split: str = DataConfig.split,
    core: int = DataConfig.core,
    user_col: str | None = DataConfig.user_col,
    item_col: str | None = DataConfig.item_col,
    time_col: str | None = DataConfig.time_col,
    drop_missing: bool = DataConfig.drop_missing,
    rating_col: str | None = DataConfig.rating_col,
    min_rating: float | None = DataConfig.min_rating,
    date_format: str | None = DataConfig.date_format,
    data_dir: PathName | None = DataConfig.data_dir,
    cache_dir: PathName | None = None,
    out: PathName | None = None,
    resume: bool = False,
    device: str = "auto",
    example_users: bool = True,
    progress: Callable[[Progress], None] | None = None,
) -> TrainedModel:
    """Train a recommender on interactions and measure it, as `tableless train` does.

    Args:
        data: The interactions: a frame (polars, pandas), an Arrow table, arrays (a dict of columns, `(users, items)` or
            `(users, items, times)`), or what the command takes: the path of a file or of a directory of parquet files,
            a known dataset, `world`. Ids are integers or strings.
        scheme: An embedding scheme, one of `tableless.SCHEMES`, or `"auto"`: the best one for the budget.
        budget: The size of the embeddings, of users and items together: a share of the bytes of the full tables in
            float32 (`"1/16"`), memory (`"64MB"`, `"8B/id"`), or a number of parameters (`"20000 parameters"`,
            `"1/4 parameters"`).
        new_ids: With the scheme `"auto"`: will the model be asked about ids that are not in the data?
        backbone: `"gmf"` or `"mlp"`.
        embedding_dim: Dimensions of an embedding.
        options: Further arguments of the scheme's `from_budget`.
        config: How to train; `TrainConfig()` unless given.
        item_features: What is known of items: a frame with a column of their ids and others (categories, tags such as
            `"Comedy|Drama"`, numbers, lists of numbers), or a file, as `"items.csv:genres,author"`.
        user_features: What is known of users, in the same way.
        features: What they are used for. `"encoding"`: they are in the code of a `dhe`, and new ids get their vectors
            from them. `"new-ids"`: only that. `"auto"`: in the code too where the scheme has one.
        test: The test actions, in any form that `data` may have. Everything in `data` is then for training.
        split: Without `test`, which actions are the test: `"leave-one-out"` (each user's last), `"global-time"`, or
            `"column"`: the column `split` (another: `"column:NAME"`) says train, validation or test.
        core: First keep only users and items with at least this many actions.
        user_col: The column of the user ids; guessed from common names.
        item_col: The column of the item ids; guessed from common names.
        time_col: The column of the times; guessed from common names. `""`: there are none.
        drop_missing: Drop rows without a user or an item (or a time or rating that is read); else they are refused.
        rating_col: The column of the ratings for `min_rating`; guessed from common names.
        min_rating: Only rows with at least this rating count.
        date_format: How dates are written: `"dmy"`, `"mdy"`, or a format such as `"%m/%d/%Y %H:%M"`.
        data_dir: Where known datasets are looked for, and downloaded to.
        cache_dir: Keep prepared files here, for the next time. Not for data in memory.
        out: A run directory to write. Without it, the run is in a temporary directory that is deleted together with
            the model; `model.save` keeps it.
        resume: Go on from the last epoch in `out`.
        device: `"auto"`, `"cpu"` or `"cuda"`.
        example_users: Keep a few user ids in the run, which a server of it shows to whoever reaches it.
        progress: Is called with a `Progress` for every remark, batch, epoch and step of the fit (with the time
            left), and for a warning if the model is no better than popularity. Without it, that warning is logged
            (`logging`).

    Returns:
        The trained model. `results` has what was measured. `recommend` leaves out what a user has in `data`. Data in
            memory is kept in a temporary file for as long as the model lives, for `evaluate`.

    Raises:
        ValueError: An argument or the data cannot be used; the message says what to do.

    Example:
        ```python
        import tableless

        model = tableless.train("world:users=200,items=120,actions=6000", config=tableless.TrainConfig(epochs=2))
        print(model.results["auc"], model.recommend(42, count=3))
        ```
    """
    if resume and out is None:
        raise ValueError("resume goes on with the run in `out`; say which directory that is")
    model_config = ModelConfig(scheme, str(budget), new_ids, backbone, embedding_dim, dict(options or {}))
    require_recommender(backbone, scheme)
    listener = Listener(progress or log_warnings)
    with ExitStack() as stack:
        read, recorded = data_configs(
            data,
            folder := temporary_folder(stack),
            test=test,
            split=split,
            core=core,
            columns=(user_col, item_col, time_col),
            rules=RowRules(drop_missing, rating_col, min_rating, date_format),
            data_dir=data_dir,
            cache_dir=cache_dir,
        )
        parts = load_and_describe(read, cache_dir=cache_dir, listener=listener)
        known = load_features(feature_config(item_features, user_features, features, folder), parts, listener.on_note)
        directory = folder / "run" if out is None else Path(out)
        told = {"with_example_users": example_users, **listener.of_training()}
        run: dict[str, Any] = {"features": known, "out": directory, "resume": resume, "device": device}
        train_and_measure(recorded, model_config, config or TrainConfig(), parts, **run, **told)
        model = _trained_model(RunDirectory(directory), read, parts, listener)
        weakref.finalize(model, stack.pop_all().close)
    return model


def evaluate(
    model: TrainedModel | TrainedClickModel | PathName,
    test: Data | None = None,
    *,
    data: Data | None = None,
    negatives: PathName | None = None,
    user_col: str | None = None,
    item_col: str | None = None,
    time_col: str | None = None,
    drop_missing: bool = False,
    rating_col: str | None = None,
    min_rating: float | None = None,
    date_format: str | None = None,
    data_dir: PathName | None = None,
) -> dict[str, Any]:
    """Measure a trained model again, as `tableless evaluate` does.

    Args:
        model: A model, a run directory, or the id of a model on the Hugging Face hub.
        test: The test actions, in any form that `tableless.train` takes. All actions of `data` are then left out of the
            ranking. Without it, the test actions are those that training held out.
        data: The interactions that the model was trained on, or others, which are then split in the same way. A model
            that `tableless.train` has returned knows its own. One that was loaded knows them only if they were a known
            dataset or a world: no file is opened that only a run directory names.
        negatives: NCF's `test.negative` file: for each test action, the items to rank it among.
        user_col: The column of the user ids; as in training unless given.
        item_col: The column of the item ids; as in training unless given.
        time_col: The column of the times; as in training unless given.
        drop_missing: Drop rows without a user or an item; as in training unless given.
        rating_col: The column of the ratings; as in training unless given.
        min_rating: Only rows with at least this rating count; as in training unless given.
        date_format: How dates are written; as in training unless given.
        data_dir: Where known datasets are looked for.

    Returns:
        What `tableless evaluate --json` prints.

    Raises:
        ValueError: It is not known which data to measure on, or the model has no rows for its users and items.

    Example:
        ```python
        import tableless

        ratings = {"user": [number // 9 for number in range(900)], "item": [number**2 % 89 for number in range(900)]}
        model = tableless.train(ratings, scheme="bloom", config=tableless.TrainConfig(epochs=2))
        later = {"user": [3, 4, 5], "item": [17, 3, 60]}
        print(tableless.evaluate(model)["auc"], tableless.evaluate(model, later)["ndcg@10"])
        ```
    """
    if isinstance(model, TrainedClickModel) or (not isinstance(model, TrainedModel) and is_click_run(model)):
        return evaluate_clicks(model, test, data, data_dir)
    known = model.trained_on if isinstance(model, TrainedModel) and data is None else None
    known_data, known_test, known_dir = (known.data, known.test, known.data_dir) if known else (None, None, None)
    data_dir = known_dir if data_dir is None else data_dir
    with ExitStack() as stack:
        folder = temporary_folder(stack)
        return measure_run(
            model.run if isinstance(model, TrainedModel) else find_run(model).read(),
            data=known_data if data is None else as_path(data, folder, name="data"),
            test=known_test if test is None else as_path(test, folder, name="test"),
            data_dir=None if data_dir is None else Path(data_dir),
            user_col=user_col,
            item_col=item_col,
            time_col=time_col,
            rules=RowRules(drop_missing, rating_col, min_rating, date_format),
            negatives=None if negatives is None else Path(negatives),
        )


def export(
    model: TrainedModel | TrainedClickModel | PathName,
    out: PathName,
    *,
    format: Literal["onnx", "torch"] = "onnx",
    precision: Literal["fp32", "int8"] = "fp32",
) -> ExportReport:
    """Write embeddings and recommender as files that answer without this library, as `tableless export` does.

    Args:
        model: A model, a run directory, or the id of a model on the Hugging Face hub.
        out: A directory for the files and `export.json`, which says what goes in and what comes out.
        format: `"onnx"`, or `"torch"`: a program of `torch.export`.
        precision: `"fp32"`, or `"int8"`: smaller files, with small errors.

    Returns:
        What was written, and how far each file agrees with the model.

    Raises:
        FileExistsError: `out` holds another export.
        ValueError: A file does not agree with the model; none is kept then.

    Example:
        ```python
        import tableless

        report = tableless.export("runs/mine", "exported/mine", format="torch")
        print([file.file for file in report.files])
        ```
    """
    run = model.directory if isinstance(model, (TrainedModel, TrainedClickModel)) else find_run(model).path
    return export_run(run, out, format=format, precision=precision)


def _trained_model(files: RunDirectory, read: DataConfig, parts: Split, listener: Listener) -> TrainedModel:
    """The model of a run that has just been trained on `parts`. The listener is told if its results are poor."""
    if not files.has_ended:
        raise RuntimeError("training was stopped before its first epoch ended: there is no model")
    run = files.read()
    listener.on_results(run.results)
    model = TrainedModel(run, seen=seen_in_data(run, read, parts))
    model.trained_on = read
    return model
