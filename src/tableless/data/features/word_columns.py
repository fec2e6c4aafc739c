"""Columns of words: categories and tags. Each frequent value has a column, and rare ones share some.

A missing value is all zeros.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import xxhash

from .column import FeatureKind, FeatureRows, kind_of

_MOST_VALUES, _FEWEST_OCCURRENCES, _SHARED_COLUMNS = 64, 2, 32
_LONGEST_WORD = 200  # characters of a value that are looked at


@dataclass(frozen=True)
class CategoryColumn:
    """One word for each id: an author, a publisher, a colour."""

    kind: ClassVar[FeatureKind] = "category"
    name: str
    values: tuple[str, ...]  # each has a column of its own
    num_shared: int  # columns that all other values share

    @classmethod
    def learn(cls, name: str, values: Sequence[Any]) -> CategoryColumn:
        """From all values of a file."""
        return cls(name, *_frequent([[word] for value in values if (word := _word(value))]))

    @property
    def width(self) -> int:
        """A column for each value, and the shared ones."""
        return len(self.values) + self.num_shared

    @property
    def summary(self) -> str:
        """How many values there are."""
        return f"{self.name} ({_counted(self.kind, self.values, self.num_shared)})"

    def encode(self, values: Sequence[Any]) -> FeatureRows:
        """A 1 in the column of the value."""
        return _multi_hot([[word] if (word := _word(value)) else [] for value in values], self._place, self.num_shared)

    def problem(self, value: Any) -> str | None:
        """It has to be a word or a number."""
        return None if isinstance(value, (str, int, float)) else f"it must be a text, not {kind_of(value)}"

    @cached_property
    def _place(self) -> dict[str, int]:
        return {value: place for place, value in enumerate(self.values)}


@dataclass(frozen=True)
class TagsColumn:
    """Several words for each id: genres, keywords. They come as a list, or as a text with a separator."""

    kind: ClassVar[FeatureKind] = "tags"
    name: str
    separator: str
    values: tuple[str, ...]
    num_shared: int

    @classmethod
    def learn(cls, name: str, values: Sequence[Any], separator: str) -> TagsColumn:
        """From all values of a file."""
        return cls(name, separator, *_frequent([_tags(value, separator) for value in values]))

    @property
    def width(self) -> int:
        """A column for each tag, and the shared ones."""
        return len(self.values) + self.num_shared

    @property
    def summary(self) -> str:
        """How many tags there are, and what separates them."""
        return f"{self.name} (tags separated by {self.separator!r}: {_counted('tag', self.values, self.num_shared)})"

    def encode(self, values: Sequence[Any]) -> FeatureRows:
        """A 1 in the column of each tag."""
        return _multi_hot([_tags(value, self.separator) for value in values], self._place, self.num_shared)

    def problem(self, value: Any) -> str | None:
        """It has to be a text, or a list of texts."""
        if isinstance(value, str) or (isinstance(value, list) and all(isinstance(tag, str) for tag in value)):
            return None
        return f"it must be a list of texts, or a text such as {f'a{self.separator}b'!r}, not {kind_of(value)}"

    @cached_property
    def _place(self) -> dict[str, int]:
        return {value: place for place, value in enumerate(self.values)}


def _frequent(rows: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], int]:
    """Words that get a column of their own, in alphabetical order, and how many columns the others share."""
    counts = Counter(word for row in rows for word in row)
    common = [word for word, count in counts.most_common(_MOST_VALUES) if count >= _FEWEST_OCCURRENCES]
    return tuple(sorted(common)), _SHARED_COLUMNS if len(counts) > len(common) else 0


def _multi_hot(rows: Sequence[Sequence[str]], place: Mapping[str, int], num_shared: int) -> FeatureRows:
    result = np.zeros((len(rows), len(place) + num_shared), np.float32)
    for row, words in zip(result, rows, strict=True):
        for word in words:
            own = place.get(word)
            if own is not None:
                row[own] = 1
            elif num_shared:
                row[len(place) + xxhash.xxh64_intdigest(word.encode()) % num_shared] = 1
    return result


def _word(value: Any) -> str:
    """A value as text; empty if it is missing. 7, 7.0 and "7" are the same."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()[:_LONGEST_WORD]


def _tags(value: Any, separator: str) -> list[str]:
    parts = value.split(separator) if isinstance(value, str) else [] if value is None else list(value)
    return [word for part in parts if (word := _word(part))]


def _counted(what: str, values: Sequence[str], num_shared: int) -> str:
    more = f", the others share {num_shared} columns" if num_shared else ""
    return f"{what}, {len(values)} values{more}" if what == "category" else f"{len(values)}{more}"
