"""What every kind of column offers: it was learned from a file, and turns values into numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

FeatureKind = Literal["category", "tags", "number", "vector"]
FeatureRows = NDArray[np.float32]

LARGEST = 3.96
"""No number of a feature is larger: about the most that 8 bits hold in steps of 1/32."""


class Column(Protocol):
    """What every kind of column offers."""

    kind: ClassVar[FeatureKind]

    @property
    def name(self) -> str:
        """What it is called in the file."""

    @property
    def width(self) -> int:
        """How many numbers a value becomes."""

    @property
    def summary(self) -> str:
        """What a user is told of it."""

    def encode(self, values: Sequence[Any]) -> FeatureRows:
        """Values [n] -> float32 [n, width]. What cannot be read counts as missing."""

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value that is not missing; None if nothing is."""


def kind_of(value: Any) -> str:
    """What a message calls a value; the value itself may be somebody's."""
    names = {
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)
