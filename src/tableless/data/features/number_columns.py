"""Columns of numbers, and of vectors. All results lie between -4 and 4, so that they can be stored in 8 bits.

A number is standardised, and says in which of eight intervals it lies. A short vector is standardised, a wide one
becomes bits that say how it points (`LSH`). A missing value is all zeros.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from ...embedding.side_features import LSH
from .column import LARGEST, FeatureKind, FeatureRows, kind_of

_REACH = 3  # interquartile ranges beyond the quartiles: further out a number counts as the bound
_INTERVALS = 8  # a linear map can then follow a curve
_WIDEST_VECTOR, _BITS = 64, 128  # a vector with more numbers becomes so many bits


@dataclass(frozen=True)
class NumberColumn:
    """A number for each id: a price, a year. Values beyond `bounds` count as these."""

    kind: ClassVar[FeatureKind] = "number"
    name: str
    mean: float
    deviation: float
    bounds: tuple[float, float]  # beyond them a value is taken for a mistake, as the year 0 is
    limits: tuple[float, ...]  # of the intervals; each begins at its limit

    @classmethod
    def learn(cls, name: str, values: Sequence[Any]) -> NumberColumn:
        """From all values of a file."""
        numbers = np.array([number for value in values if (number := as_number(value)) is not None])
        if not len(numbers):
            numbers = np.zeros(1)
        lowest, first, third, highest = np.quantile(numbers, (0.01, 0.25, 0.75, 0.99)).tolist()
        reach = _REACH * (third - first) or highest - lowest
        low, high = max(lowest, first - reach), min(highest, third + reach)
        within = numbers.clip(low, high)
        cuts = np.unique(np.quantile(within, np.arange(1, _INTERVALS) / _INTERVALS)).tolist()
        return cls(name, float(within.mean()), float(within.std()) or 1.0, (low, high), tuple(cuts))

    @property
    def width(self) -> int:
        """The number itself, and a column for each interval."""
        return 2 + len(self.limits)

    @property
    def summary(self) -> str:
        """Its mean."""
        return f"{self.name} (number, {self.mean:.4g} ± {self.deviation:.3g})"

    def encode(self, values: Sequence[Any]) -> FeatureRows:
        """The standardised number, then a 1 in the column of its interval."""
        numbers = [as_number(value) for value in values]
        rows = np.zeros((len(values), self.width), np.float32)
        there = np.array([number is not None for number in numbers], bool)
        own = np.array([number for number in numbers if number is not None], np.float64).clip(*self.bounds)
        rows[there, 0] = ((own - self.mean) / self.deviation).clip(-LARGEST, LARGEST)
        rows[np.flatnonzero(there), 1 + np.searchsorted(self.limits, own, side="right")] = 1
        return rows

    def problem(self, value: Any) -> str | None:
        """It has to be a finite number, or a text that is one."""
        return None if as_number(value) is not None else f"it must be a number, not {kind_of(value)}"


@dataclass(frozen=True)
class VectorColumn:
    """A list of numbers for each id, of one length: what a language model makes of a title."""

    kind: ClassVar[FeatureKind] = "vector"
    name: str
    mean: tuple[float, ...]
    deviation: float  # of all numbers together: directions are to stay as they are
    num_bits: int  # 0: the numbers themselves

    @classmethod
    def learn(cls, name: str, values: Sequence[Any]) -> VectorColumn:
        """From all values of a file. The most frequent length is the right one."""
        lists = [list(value) for value in values if value is not None and len(value)]
        size = Counter(map(len, lists)).most_common(1)[0][0] if lists else 1
        whole = [own for own in lists if len(own) == size and _are_numbers(own)]
        rows = np.array(whole, np.float64).reshape(-1, size) if whole else np.zeros((1, size))
        deviation = float((rows - rows.mean(0)).std()) or 1.0
        return cls(name, tuple(rows.mean(0).tolist()), deviation, _BITS if size > _WIDEST_VECTOR else 0)

    @property
    def width(self) -> int:
        """Its numbers, or its bits."""
        return self.num_bits or len(self.mean)

    @property
    def summary(self) -> str:
        """How many numbers it has."""
        bits = f", as {self.num_bits} bits" if self.num_bits else ""
        return f"{self.name} (vector of {len(self.mean)} numbers{bits})"

    def encode(self, values: Sequence[Any]) -> FeatureRows:
        """The standardised numbers, or 1 and -1 for each bit."""
        fits = np.array([value is not None and self.problem(list(value)) is None for value in values], bool)
        rows = np.zeros((len(values), self.width), np.float32)
        own = np.array([list(value) for value, ok in zip(values, fits, strict=True) if ok], np.float64)
        own = (own.reshape(-1, len(self.mean)) - np.array(self.mean)) / self.deviation
        if self.num_bits:
            own = 2 * LSH(self.num_bits)(torch.from_numpy(own)).numpy() - 1
        rows[fits] = own.clip(-LARGEST, LARGEST)
        return rows

    def problem(self, value: Any) -> str | None:
        """It has to be a list of as many finite numbers."""
        if isinstance(value, list) and len(value) == len(self.mean) and _are_numbers(value):
            return None
        return f"it must be a list of {len(self.mean)} numbers, not {kind_of(value)}"


def as_number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, (list, dict, type(None))):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(not isinstance(value, str) and as_number(value) is not None for value in values)
