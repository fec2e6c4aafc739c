"""Parts of click data: for training, validation and test; what training knows of each column; and examples.

An example is a row with its answer. Without labels the rows are actions, which all happened. For each of them some more
examples are made that did not: the same row with another item.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..interactions import DataError
from .columns import ClickColumn
from .table import ClickTable, IdData, ListData, NumberData, TableRows

HELD_OUT = 0.1
"""The share of the rows that is test, and of those that are validation."""
NEGATIVES = 4
"""Items that are drawn for each action, unless it is said how many."""
_FEWEST_ROWS = 20


@dataclass(frozen=True)
class Known:
    """What training knows of a column of ids: the ids, the most frequent first, and how often each occurs."""

    ids: NDArray[np.int64]
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class Examples:
    """Rows with answers. The item's columns are those of `item_rows`."""

    table: ClickTable
    rows: TableRows
    item_rows: TableRows
    labels: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, size: int) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        """In order: what a model is fed, and the answers."""
        for first in range(0, len(self), size):
            own = slice(first, first + size)
            yield self.table.inputs(self.rows[own], self.item_rows[own]), torch.from_numpy(self.labels[own])

    def shuffled(self, random: np.random.Generator) -> Examples:
        """In another order."""
        order = random.permutation(len(self))
        return Examples(self.table, self.rows[order], self.item_rows[order], self.labels[order])


@dataclass(frozen=True)
class ClickSplit:
    """Which rows are for what."""

    table: ClickTable
    train: TableRows
    validation: TableRows
    test: TableRows

    @cached_property
    def known(self) -> dict[str, Known]:
        """What training knows of each column of ids."""
        return {column.name: self._known(column) for column in self.table.columns if not column.is_number}

    @cached_property
    def numbers(self) -> dict[str, NDArray[np.float32]]:
        """The numbers of each column of them in training, without those that are missing."""
        data = {name: own for name, own in self.table.data.items() if isinstance(own, NumberData)}
        found = {name: own.values[self.train] for name, own in data.items()}
        return {name: values[~np.isnan(values)] for name, values in found.items()}

    def examples(self, rows: TableRows, *, num_negatives: int, random: np.random.Generator) -> Examples:
        """Examples of some rows. Without labels, `num_negatives` known items are drawn for each action, all alike."""
        if self.table.labels is not None:
            return Examples(self.table, rows, rows, self.table.labels[rows])
        drawn = random.choice(self._rows_of_items, (len(rows), num_negatives))
        item_rows = np.concatenate([rows[:, None], drawn], axis=1)
        labels = np.zeros(item_rows.shape, np.float32)
        labels[:, 0] = 1
        return Examples(self.table, np.repeat(rows, 1 + num_negatives), item_rows.reshape(-1), labels.reshape(-1))

    @cached_property
    def _rows_of_items(self) -> TableRows:
        """For each item that training knows, a row that has it."""
        assert self.table.item is not None
        data = self.table.data[self.table.item]
        assert isinstance(data, IdData)
        return self.train[np.unique(data.codes[self.train], return_index=True)[1]]

    def _known(self, column: ClickColumn) -> Known:
        data = self.table.data[column.name]
        assert isinstance(data, (IdData, ListData))
        places = self.train if isinstance(data, IdData) else data.places_of(self.train)
        counts = np.bincount(data.codes[places], minlength=len(data.ids))
        order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        return Known(data.ids[order], counts[order].astype(np.int64))


def split_clicks(table: ClickTable, *, seed: int = 0) -> ClickSplit:
    """The last tenth by time is test and the tenth before it validation; without times they are drawn by `seed`."""
    count, held_out = table.num_rows, int(table.num_rows * HELD_OUT)
    if count < _FEWEST_ROWS:
        raise DataError(f"{count} rows are too few to be split; give {_FEWEST_ROWS} or more")
    if table.times is None:
        order = np.random.default_rng(seed).permutation(count)
    else:
        order = np.argsort(table.times, kind="stable")
    parts = np.split(order.astype(np.int64), [count - 2 * held_out, count - held_out])
    split = ClickSplit(table, *map(np.sort, parts))
    for name in ("train", "validation", "test"):
        _require_both_answers(table, getattr(split, name), name)
    return split


def _require_both_answers(table: ClickTable, rows: TableRows, part: str) -> None:
    """Where all answers are alike, nothing can be learned or measured."""
    if table.labels is None:
        return
    mean = float(table.labels[rows].mean())
    if mean in (0.0, 1.0):
        raise DataError(
            f"every label of the {part} rows is {mean:.0f}; is it the right column? Rows without a click are needed as "
            "well; if there are none, leave the label away, and items that were not chosen are drawn"
        )


def whole_table(table: ClickTable) -> ClickSplit:
    """A table that is measured as it is: all its rows are test, and items are drawn from all of them."""
    everything = np.arange(table.num_rows)
    _require_both_answers(table, everything, "test")
    return ClickSplit(table, everything, everything[:0], everything)
