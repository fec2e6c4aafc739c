"""The lists of a run directory, `items.parquet` and `users.parquet`: written whole, and checked when they are read.

A trained model as a directory: `config.json`, `model.safetensors`, `metrics.jsonl`, and what resuming needs.

What a trained run is for: vectors for any number of ids, known and new.

What tells one trained model from another."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, tensor

from ..data.interactions import DataError, Interactions
from ..embedding.ids import find, to_ids
from ..files.scheme_directory import (
    CONFIG,
    WEIGHTS,
    read_json,
    read_model,
    write_model,
)
from ..files.tensors import load_tensors, save_tensors
from ..files.whole import replacing, write_text
from .models import Recommender, build_recommender
from .training import EpochReport

if TYPE_CHECKING:
    import polars as pl


def write_list(frame: pl.DataFrame, path: Path) -> None:
    """A parquet file."""
    import polars as pl

    with replacing(path) as part:
        try:
            frame.write_parquet(part)
        except pl.exceptions.PolarsError as error:  # a full disk, for instance
            raise OSError(f"{path} could not be written: {error}") from None


def read_list(path: Path, *, columns: tuple[str, ...]) -> pl.DataFrame:
    """A parquet file that has at least these columns."""
    try:
        import pyarrow.parquet as pq
    except ImportError as missing:
        raise ImportError(f"the items of a run are read by {missing.name}: pip install 'tableless[data]'") from missing
    from ..data.reading.sniffing import one_line_errors, to_frame

    with one_line_errors(path):  # by pyarrow, because a file made to harm can end a process that reads it by polars
        frame = to_frame(pq.read_table(path, partitioning=None))
    for column in columns:
        if column not in frame.columns:
            raise DataError(f"{path} has no column {column!r}; it is not what `tableless train` wrote")
    return frame


def _save_lists(model: Recommender, train: Interactions, directory: Path) -> None:
    """What must be listed: the items that can be recommended, and the users of a scheme that has a row for each."""
    import polars as pl

    names = train.item_names if train.item_names is not None else pl.Series(values=np.array(train.item_ids))
    counts = np.bincount(train.items, minlength=train.num_items)
    lists = {"items": pl.DataFrame({"item": names, "id": np.array(train.item_ids), "actions": counts})}
    if not model.users.open_vocabulary:
        lists["users"] = pl.DataFrame({"id": np.array(train.user_ids)})
    for name, frame in lists.items():
        write_list(frame, directory / f"{name}.parquet")


_METRICS, _STATE, _START, _STAGES = "metrics.jsonl", "resume.safetensors", "start.safetensors", "start.json"
_RESULTS, _EVENTS = "results.json", "tensorboard"
_BESIDE_CONFIG = (WEIGHTS, "items.parquet", "users.parquet", _RESULTS, _METRICS, _STATE, _START, _STAGES)


def load_run(directory: str | os.PathLike[str]) -> tuple[Recommender, dict[str, Any]]:
    """The model of a run directory, ready to score, and everything its config says."""
    folder = Path(directory)
    if not (folder / CONFIG).exists():
        raise FileNotFoundError(f"{folder} holds no trained model (there is no {CONFIG}); `tableless train` makes one")
    require_file(folder / WEIGHTS)
    config = read_json(folder / CONFIG)
    model = read_model(folder, config.get("model"), build_recommender)
    if not all(_kind(config, side) in ("integer", "string") for side in ("user", "item")):
        raise ValueError(f"{folder / CONFIG} does not say whether users and items are integers or strings (`kinds`)")
    return model.eval(), config


def require_file(path: Path) -> None:
    """A run has all its files when it has ended, and not before."""
    if not path.exists():
        raise FileNotFoundError(
            f"{path.parent} holds a run that has not come to its end (there is no {path.name}); the command that began "
            "it, with --resume, goes on with it"
        )


def require_free(directory: Path) -> None:
    """Refuse a directory that holds a run, or cannot be written to: now, and not after hours of training."""
    if (directory / CONFIG).exists():
        raise FileExistsError(f"{directory} holds a run already; give another --out, or --resume to go on with it")
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory):
        pass


def copy_run(source: Path, target: Path) -> None:
    """Copy all files of a run to a directory that holds none. The config, with which the run is there, comes last."""
    if (target / CONFIG).exists():
        raise FileExistsError(f"{target} holds a run already; give another directory, or delete it first")
    require_free(target)
    for name in (*_BESIDE_CONFIG, CONFIG):
        if (source / name).exists():
            with replacing(target / name) as part:
                shutil.copyfile(source / name, part)
    if (source / _EVENTS).exists():
        shutil.copytree(source / _EVENTS, target / _EVENTS, dirs_exist_ok=True)


class RunDirectory:
    """The journal of a training run. Every file appears whole or not at all.

    Of several processes the first writes; all of them read, since all must go on from the same place.
    """

    def __init__(
        self, directory: str | os.PathLike[str], config: Mapping[str, Any], *, resume: bool, writes: bool = True
    ) -> None:
        self.directory = Path(directory)
        self.config = dict(config)
        self._resume = resume
        self._writes = writes
        if not writes:
            return
        if resume and (self.directory / CONFIG).exists():
            self._refuse_another_run()
        else:
            require_free(self.directory)

    def resume(self) -> tuple[list[EpochReport], dict[str, Tensor]]:
        """The epochs that were finished and the state after them."""
        state = self.directory / _STATE
        if not self._resume or not state.exists():
            return [], {}
        tensors = load_tensors(state)
        done = int(tensors.pop("epochs").item())
        lines = (self.directory / _METRICS).read_text(encoding="utf-8").splitlines()
        try:
            return [EpochReport(**json.loads(line)) for line in lines[:done]], tensors
        except (ValueError, TypeError):
            raise ValueError(
                f"{self.directory / _METRICS} is damaged, and {_STATE} cannot be resumed without it; give another --out"
            ) from None

    def start(self) -> tuple[dict[str, Tensor], list[dict[str, Any]]] | None:
        """What training began with (weights, a teacher) and the stages before, if an earlier attempt got that far."""
        path = self.directory / _START
        if not self._resume or not path.exists():
            return None
        stages = self.directory / _STAGES
        return load_tensors(path), read_json(stages)["stages"] if stages.exists() else []

    def keep_start(self, model: Mapping[str, Tensor], stages: Sequence[Mapping[str, Any]]) -> None:
        """Keep what training begins with, and what was done to get there. The weights are written last."""
        if not self._writes:
            return
        write_text(self.directory / CONFIG, json.dumps(self.config, indent=2) + "\n")
        write_text(self.directory / _STAGES, json.dumps({"stages": list(stages)}, indent=2) + "\n")
        save_tensors(model, self.directory / _START)

    def record(self, report: EpochReport, model: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Add an epoch. The state that says how many epochs count is written last."""
        if not self._writes:
            return
        metrics = self.directory / _METRICS
        earlier = metrics.read_text(encoding="utf-8").splitlines()[: report.epoch] if report.epoch else []
        write_text(metrics, "\n".join([*earlier, json.dumps(asdict(report))]) + "\n")
        if report.is_best or not (self.directory / WEIGHTS).exists():
            write_model(self.directory, self.config, model)
        save_tensors({**state, "epochs": tensor(report.epoch + 1)}, self.directory / _STATE)
        _add_to_tensorboard(self.directory, report)

    def finish(self, results: Mapping[str, Any]) -> None:
        """Keep what was measured at the end."""
        write_text(self.directory / _RESULTS, json.dumps(results, indent=2) + "\n")

    def _refuse_another_run(self) -> None:
        """Resuming with other settings would silently mix two experiments; more epochs are the exception."""
        found = read_json(self.directory / CONFIG)
        for key in found.keys() | self.config.keys():
            ours, theirs = _without_epochs(self.config.get(key)), _without_epochs(found.get(key))
            if ours != theirs and key != "versions":
                raise ValueError(
                    f"{self.directory} was started with another {key} ({theirs} instead of {ours}); give another --out"
                )


def _add_to_tensorboard(directory: Path, report: EpochReport) -> None:
    """The same figures as events, where that extra is installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(directory / _EVENTS)) as events:
        for name in ("loss", "validation_auc", "examples_per_second"):
            events.add_scalar(name, getattr(report, name), report.epoch)


def _kind(config: Mapping[str, Any], side: str) -> Any:
    kinds = config.get("kinds")
    return kinds.get(side) if isinstance(kinds, dict) else None


def _without_epochs(value: Any) -> Any:
    return {key: item for key, item in value.items() if key != "epochs"} if isinstance(value, dict) else value


if TYPE_CHECKING:
    import polars as pl

Side = Literal["user", "item"]


class TrainedRun:
    """A run directory, ready to answer. Raw ids go in as the data had them, strings or integers."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.model, self.config = load_run(self.directory)
        self.items = self._read_list("items.parquet", ("item", "id"))  # item (its raw id), id and, if counted, actions
        self._rows: dict[str, tuple[Tensor, Tensor]] = {}

    def inputs(self, side: Side, raw: Any) -> Tensor:
        """Raw ids -> what the scheme of that side is asked: ids, or the rows of a closed scheme's table."""
        ids = to_ids(raw)
        scheme = self.model.users if side == "user" else self.model.items
        if scheme.open_vocabulary:
            return ids
        listed, row = self._rows_by_id(side)
        position, known = find(ids, listed)
        if not bool(known.all()):
            first = int((~known).reshape(-1).nonzero()[0])
            raise ValueError(
                f"this run's table has no row for {side} number {first + 1} of those asked for: it was not in the "
                "training data. A scheme that is open to new ids, such as dhe, would answer"
            )
        return row[position]

    def parse(self, side: Side, text: str) -> int | str:
        """A raw id typed by a person, in the kind the data has."""
        if self.config["kinds"][side] == "string":
            return text
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{side} ids are integers in this data; {text!r} is none") from None

    def embed(self, side: Side, raw: Any) -> Tensor:
        """Vectors [n, embedding_dim] of raw ids."""
        scheme = self.model.users if side == "user" else self.model.items
        with torch.no_grad():
            return scheme(self.inputs(side, raw))

    def listed(self, side: Side) -> pl.DataFrame:
        """The ids of a side that the run lists and can answer for: `id`; of items also `item`, the raw id, and (unless
        it was trained on a stream) `actions`. Users are listed only where their scheme has a row for each.
        """
        frame = self.items if side == "item" else self._read_list("users.parquet", ("id",))
        scheme = self.model.users if side == "user" else self.model.items
        # After a global-time split, those that were new at test time stand behind the others and have no rows.
        return frame if scheme.open_vocabulary else frame.head(scheme.config["vocab_size"])

    def _read_list(self, name: str, columns: tuple[str, ...]) -> pl.DataFrame:
        require_file(self.directory / name)
        return read_list(self.directory / name, columns=columns)

    def _rows_by_id(self, side: Side) -> tuple[Tensor, Tensor]:
        """The ids of a closed scheme's rows in ascending order, and the row of each."""
        if side not in self._rows:
            ids, row = torch.sort(to_ids(self.listed(side)["id"]))
            self._rows[side] = ids, row
        return self._rows[side]


def fingerprint(run: Path) -> str:
    """A hash of a run's model: its description and its weights."""
    if not (run / CONFIG).exists():
        raise FileNotFoundError(f"{run} holds no trained model (there is no {CONFIG}); `tableless train` makes one")
    require_file(run / WEIGHTS)
    digest = hashlib.sha256()
    for name in (CONFIG, WEIGHTS):
        with (run / name).open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()
