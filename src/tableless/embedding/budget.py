"""Budgets: how large a scheme may be, as people say it, and the largest scheme that keeps to it.

People pay for bytes. So a budget is memory ("64MB", "8B/id") or a share of what the full table takes in float32
("1/16"). All that is needed to answer for an id counts, at the precision in which it is stored. The paper counts
parameters, and a budget may do that too ("20000 parameters", "1/4 parameters", or a plain number).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol, TypeVar

import torch

BYTES_PER_PARAMETER = 4
"""Of a table in float32, which shares refer to."""

_UNITS = {
    "B": 1,
    "BYTE": 1,
    "BYTES": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}


class Sized(Protocol):
    """What has a size: every scheme."""

    @property
    def num_bytes(self) -> int:
        """All that is stored."""

    @property
    def num_parameters(self) -> int:
        """Trainable numbers."""


@dataclass(frozen=True)
class Allowance:
    """A budget as a number: at most so many bytes, or so many parameters."""

    amount: int
    unit: Literal["bytes", "parameters"]

    def cost(self, scheme: Sized) -> int:
        """What a scheme takes, in the unit of the allowance."""
        return scheme.num_bytes if self.unit == "bytes" else scheme.num_parameters

    def share(self, part: int, whole: int) -> Allowance:
        """`part` of `whole` equal shares of it, rounded down."""
        return Allowance(self.amount * part // whole, self.unit)

    def without(self, amount: int) -> Allowance:
        """What is left of it."""
        return Allowance(self.amount - amount, self.unit)

    @property
    def num_bytes(self) -> int:
        """The same in bytes, if a parameter has four of them."""
        return self.amount * (BYTES_PER_PARAMETER if self.unit == "parameters" else 1)

    @property
    def in_bytes(self) -> Allowance:
        """The same as an allowance of bytes, for schemes that mostly store codes, which are no parameters."""
        return Allowance(self.num_bytes, "bytes")

    def __str__(self) -> str:
        return f"{self.amount} {self.unit}"


class BudgetTooSmall(ValueError):
    """No instance of a scheme keeps to the budget. `smallest` is the least it takes, in the unit of the budget."""

    def __init__(self, allowed: Allowance, smallest: int) -> None:
        super().__init__(f"a budget of {allowed} is too small; the smallest possible here is {smallest}")
        self.smallest = smallest


Budget = int | str | Allowance
"""Memory ("64MB", "4096B", "8B/id"), a share of the bytes of the full float32 table ("1/16", "25%"), or a number of
trainable parameters (20_000, "20000 parameters", "1/4 parameters")."""


def resolve_budget(budget: Budget, *, embedding_dim: int, vocab_size: int) -> Allowance:
    """A budget in any of its forms as a number of bytes or parameters."""
    if isinstance(budget, Allowance):
        return budget
    text = str(budget).strip()
    counted = re.fullmatch(r"(.*?)\s*param(?:eter)?s?", text, re.IGNORECASE)
    number = counted[1] if counted else text
    unit: Literal["bytes", "parameters"] = "parameters" if counted or not is_share(text) else "bytes"
    try:
        if memory := _memory(text):
            unit = "bytes"
            size = Fraction(memory[1]) * _UNITS[memory[2].upper()] * (vocab_size if memory[3] else 1)
        elif is_share(number):
            full_table = embedding_dim * vocab_size * (BYTES_PER_PARAMETER if unit == "bytes" else 1)
            size = _share(number) * full_table
        else:
            size = Fraction(number)
    except (ValueError, ZeroDivisionError):
        raise ValueError(
            f'a budget of {budget!r} is not understood; give memory ("64MB", "4096B" or "8B/id"), a share of the full '
            'table ("1/16" or "25%"), or a number of parameters ("20000 parameters")'
        ) from None
    if size < 1:
        raise ValueError(f"a budget of {budget!r} comes to less than one of its {unit}; give a larger one")
    return Allowance(int(size), unit)


def is_share(budget: Budget) -> bool:
    """Does the budget depend on the vocabulary, such as "1/16", "0.25", "25%" or "8B/id"?"""
    text = str(budget)
    memory = _memory(text)
    return bool(memory[3]) if memory else any(sign in text for sign in "/.%")


Scheme = TypeVar("Scheme", bound=Sized)


def fit_to_budget(
    build: Callable[[int], Scheme], allowed: Allowance, *, smallest: int = 1, largest: int = 2**40
) -> Scheme:
    """`build(size)` for the largest size that keeps to the allowance. A larger size must not take less.

    Candidates are built on torch's meta device, where they take no memory, and are counted there.
    """

    def cost(size: int) -> int:
        with torch.device("meta"):
            return allowed.cost(build(size))

    if cost(smallest) > allowed.amount:
        raise BudgetTooSmall(allowed, cost(smallest))
    fits, step = smallest, 1
    while fits + step <= largest and cost(fits + step) <= allowed.amount:
        fits, step = fits + step, step * 2
    while step:
        if fits + step <= largest and cost(fits + step) <= allowed.amount:
            fits += step
        step //= 2
    return build(fits)


def in_units(num_bytes: float) -> str:
    """A number of bytes as people read it, in the units that a budget has: 812 B, 64.0 KB, 1.55 MB."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if num_bytes >= 0.9995 * size:  # else it would be shown as 1000 of the unit below
            value = num_bytes / size
            return f"{value:.0f} {unit}" if value >= 999.5 else f"{value:#.3g} {unit}".replace(". ", " ")
    return f"{num_bytes:.4g} B"


def _share(text: str) -> Fraction:
    text = text.strip()
    return Fraction(text[:-1].rstrip()) / 100 if text.endswith("%") else Fraction(text)


def _memory(text: str) -> re.Match[str] | None:
    """Number, unit and "/id" (or nothing) of a budget that is memory."""
    return re.fullmatch(r"\s*([\d.]+)\s*((?:[KMG]i?)?B|bytes?)(\s*/\s*id)?\s*", text, re.IGNORECASE)
