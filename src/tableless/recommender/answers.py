"""What a trained run is for: vectors for any number of ids, known and new."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from ..embedding.ids import to_ids
from ..embedding.lookup import find
from .checkpoint import load_run, require_file
from .lists import read_list

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
