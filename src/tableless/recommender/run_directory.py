"""A run directory: the files that training leaves behind. No other module knows their names or how they are written.

`RunDirectory` knows the paths, writes and reads; `StoredRun` is what was read. Every file appears whole or not at all.
`config.json` comes last: a directory without it holds no run.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..embedding.ids import parse_id, to_ids
from ..embedding.scheme import EmbeddingScheme
from ..files.scheme_directory import (
    CONFIG,
    WEIGHTS,
    read_json,
    read_model,
    write_model,
)
from ..files.whole import replacing, write_text
from .added_ids import AddedRows, describe_ids
from .models import Recommender, build_recommender
from .scoring import RowsById

if TYPE_CHECKING:
    import polars as pl

Side = Literal["user", "item"]

TRAVELLING = (CONFIG, WEIGHTS, "items.parquet", "users.parquet", "results.json", "added_items.jsonl")
"""The files that go to the hub and to other machines. None of them can hold code."""
_JOURNAL = ("metrics.jsonl", "resume.safetensors", "start.safetensors", "start.json")
_ADDED_ITEMS, _ADDED_USERS = "added_items.jsonl", "added_users.jsonl"
_AT_HOME = ("example_users.json", _ADDED_USERS)  # names of people: they stay on this machine


class RunDirectory:
    """The files of one run. Making this object touches no file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config, self.weights = self.path / CONFIG, self.path / WEIGHTS
        self.lists: dict[Side, Path] = {"item": self.path / "items.parquet", "user": self.path / "users.parquet"}
        self.added: dict[Side, AddedRows] = {
            "item": AddedRows(self.path / _ADDED_ITEMS),
            "user": AddedRows(self.path / _ADDED_USERS),
        }
        self.results = self.path / "results.json"
        # What training needs to go on after a stop; `TrainingJournal` writes and reads it.
        self.metrics, self.resume_state, self.start_weights, self.start_stages = (self.path / name for name in _JOURNAL)
        self.events = self.path / "tensorboard"
        self.example_users = self.path / _AT_HOME[0]
        # What a stream needs to go on after a stop; `stream_events.py` writes and reads it.
        self.stream_state, self.stream_journal = self.path / "stream.safetensors", self.path / "stream.journal"

    @property
    def has_ended(self) -> bool:
        """Did training come to its end? The results are the last thing it writes."""
        return self.results.exists()

    def require_free(self) -> None:
        """Refuse a directory that holds a run, or that cannot be written to: before hours of training, not after."""
        if self.config.exists():
            raise FileExistsError(f"{self.path} holds a run already; give another --out, or --resume to go on with it")
        self.path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self.path):
            pass

    def write(
        self,
        config: Mapping[str, Any],
        weights: Mapping[str, Tensor],
        *,
        items: pl.DataFrame,
        user_ids: NDArray[np.int64] | None = None,
        results: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a whole run. `items` is made by `item_list`; a table of users needs `user_ids`, one for each row."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.write_lists(items, user_ids)
        if results is not None:
            self.write_results(results)
        self.write_model(config, weights)

    def write_model(self, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        """Write the weights, then the config."""
        write_model(self.path, config, weights)

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write what the run is, without its weights."""
        write_text(self.config, json.dumps(config, indent=2) + "\n")

    def write_lists(self, items: pl.DataFrame, user_ids: NDArray[np.int64] | None = None) -> None:
        """Write the items that can be recommended, and the users of a scheme that has a row for each."""
        import polars as pl

        from ..data.reading.parquet import write_list

        write_list(items, self.lists["item"])
        if user_ids is not None:
            write_list(pl.DataFrame({"id": user_ids}), self.lists["user"])

    def write_results(self, results: Mapping[str, Any]) -> None:
        """Write what was measured at the end."""
        write_text(self.results, json.dumps(results, indent=2) + "\n")

    def read(self) -> StoredRun:
        """The run, ready to answer. The list of users is read when it is asked for: only tables of users need it."""
        model, config = self.read_model()
        items, added = self.read_list("item"), self.added["item"]
        return StoredRun(self, model, config, added.behind(items) if added.path.exists() else items)

    def read_model(self) -> tuple[Recommender, dict[str, Any]]:
        """The model, ready to score, and everything the config says."""
        self._require_model()
        config = read_json(self.config)
        if config.get("kind") == "clicks":
            raise ValueError(
                f"{self.path} holds a click model, which scores rows of columns and recommends nothing; "
                "tableless.load_clicks loads it, and `tableless serve` serves it"
            )
        model = read_model(self.path, config.get("model"), build_recommender)
        for side, added in self.added.items():
            describe_ids(model, config, side, added.read())
        if not all(_kind(config, side) in ("integer", "string") for side in ("user", "item")):
            raise ValueError(f"{self.config} does not say whether users and items are integers or strings (`kinds`)")
        return model.eval(), config

    def read_list(self, side: Side) -> pl.DataFrame:
        """The listed ids of a side: `id`; of items also `item`, the raw id, and, if they were counted, `actions`."""
        _require_file(self.lists[side])
        from ..data.reading.parquet import read_list_file

        return read_list_file(self.lists[side], columns=("item", "id") if side == "item" else ("id",))

    def read_results(self) -> dict[str, Any]:
        """What was measured at the end; empty if nothing was."""
        return read_json(self.results) if self.results.exists() else {}

    def write_example_users(self, users: Sequence[int | str] | None) -> None:
        """Write a few raw ids of users, for the page to offer; None: none are to be shown."""
        write_text(self.example_users, json.dumps({"users": None if users is None else list(users)}) + "\n")

    def read_example_users(self) -> list[int | str] | None:
        """A few raw ids of users; empty where training left none, None where none are to be shown."""
        users = read_json(self.example_users).get("users") if self.example_users.exists() else []
        if users is None:
            return None
        return [user for user in users if isinstance(user, (int, str))] if isinstance(users, list) else []

    def fingerprint(self) -> str:
        """A hash of the model: its description and its weights. It tells one trained model from another."""
        self._require_model()
        digest = hashlib.sha256()
        for path in (self.config, self.weights, *(added.path for added in self.added.values() if added.path.exists())):
            with path.open("rb") as file:
                while chunk := file.read(1 << 20):
                    digest.update(chunk)
        return digest.hexdigest()

    def copy_to(self, target: RunDirectory) -> None:
        """Copy all files to a directory that holds no run."""
        if target.config.exists():
            raise FileExistsError(f"{target.path} holds a run already; give another directory, or delete it first")
        target.require_free()
        for name in (*(name for name in TRAVELLING if name != CONFIG), *_JOURNAL, *_AT_HOME, CONFIG):
            if (self.path / name).exists():
                with replacing(target.path / name) as part:
                    shutil.copyfile(self.path / name, part)
        if self.events.exists():
            shutil.copytree(self.events, target.events, dirs_exist_ok=True)

    def travelling(self) -> list[Path]:
        """The files that go to the hub and to other machines, as far as the run has them."""
        return [self.path / name for name in TRAVELLING if (self.path / name).exists()]

    def replace_all_but_config(self, source: RunDirectory) -> None:
        """Put another run's travelling files in the place of those that are here; the caller then writes the config.

        There is no config as long as files of both runs may stand beside each other.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        paths = [path for path in source.travelling() if path.name != CONFIG]
        with tempfile.TemporaryDirectory(prefix=".", dir=self.path) as temporary:
            for path in paths:  # the files that are here stay until all others are known to fit on the disk
                shutil.copyfile(path, Path(temporary) / path.name)
            for name in TRAVELLING:
                (self.path / name).unlink(missing_ok=True)
            for path in paths:
                os.replace(Path(temporary) / path.name, self.path / path.name)

    def _require_model(self) -> None:
        if not self.config.exists():
            raise FileNotFoundError(
                f"{self.path} holds no trained model (there is no {CONFIG}); `tableless train` makes one"
            )
        _require_file(self.weights)


@dataclass(frozen=True)
class StoredRun:
    """A run as it was read."""

    files: RunDirectory
    model: Recommender
    config: dict[str, Any]
    items: pl.DataFrame  # as in the file: `item`, `id` and, if they were counted, `actions`

    @cached_property
    def results(self) -> dict[str, Any]:
        """What was measured after training; empty if nothing was."""
        return self.files.read_results()

    @cached_property
    def _users(self) -> pl.DataFrame:
        return self.files.read_list("user")

    def scheme(self, side: Side) -> EmbeddingScheme:
        """The embedding of a side."""
        return self.model.users if side == "user" else self.model.items

    def listed(self, side: Side) -> pl.DataFrame:
        """The ids that the run lists and can answer for. Users are listed only if their scheme has a row for each."""
        frame = self.items if side == "item" else self._users
        scheme = self.scheme(side)
        # After a global-time split, ids that were new at test time stand behind the others and have no rows.
        return frame if scheme.num_known_ids is None else frame.head(scheme.num_known_ids)

    def rows_by_id(self, side: Side) -> RowsById | None:
        """Finds the rows of ids in a closed scheme's table. None: an open scheme is fed the ids themselves."""
        return None if self.scheme(side).open_vocabulary else RowsById(to_ids(self.listed(side)["id"]), side)

    def parse(self, side: Side, text: str) -> int | str:
        """A raw id typed by a person, in the kind that the data has."""
        return parse_id(text, kind=self.config["kinds"][side], side=side)


def item_list(names: Any, *, ids: NDArray[np.int64] | None = None, actions: Any = None) -> pl.DataFrame:
    """The list of items as a run keeps it: raw ids, their ids and, if they were counted, how often each was chosen."""
    import polars as pl

    columns = {"item": names, "id": to_ids(names).numpy() if ids is None else np.array(ids)}
    return pl.DataFrame(columns if actions is None else {**columns, "actions": actions})


def _require_file(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(
            f"{path.parent} holds a run that has not come to its end (there is no {path.name}); the command that began "
            "it, with --resume, goes on with it"
        )


def _kind(config: Mapping[str, Any], side: str) -> Any:
    kinds = config.get("kinds")
    return kinds.get(side) if isinstance(kinds, dict) else None
