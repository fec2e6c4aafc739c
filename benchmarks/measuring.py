"""What every benchmark here gives back: rows with the question, what was reached, how it spread, and the target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tableless.kernels.resources import on_threads
from tableless.serving.timing import Spread, describe_machine, time_alternately

__all__ = [
    "Row",
    "Spread",
    "at_least",
    "at_most",
    "describe_machine",
    "figure",
    "markdown",
    "not_measured",
    "on_threads",
    "show",
    "time_alternately",
]


@dataclass(frozen=True)
class Row:
    """One line of the results. `holds` is None where there is no target, or nothing was measured."""

    question: str
    reached: str
    spread: str = ""
    target: str = ""
    holds: bool | None = None


def at_most(question: str, reached: Spread, target: float, unit: str = "") -> Row:
    """A row whose median should not lie above the target."""
    return Row(question, *_texts(reached, unit), f"≤ {_number(target)}{unit}", reached.median <= target)


def at_least(question: str, reached: Spread, target: float, unit: str = "") -> Row:
    """A row whose median should not lie below the target."""
    return Row(question, *_texts(reached, unit), f"≥ {_number(target)}{unit}", reached.median >= target)


def figure(question: str, reached: Spread, unit: str = "") -> Row:
    """A row that is there to be known, without a target."""
    return Row(question, *_texts(reached, unit))


def not_measured(question: str, why: str, target: str) -> Row:
    """A row for what can't be measured here."""
    return Row(question, f"not measured: {why}", target=target)


def markdown(rows: Iterable[Row]) -> str:
    """The rows as a table."""
    lines = ["| question | reached | range | target | holds |", "| --- | --- | --- | --- | --- |"]
    verdict = {True: "yes", False: "**no**", None: ""}
    lines += [
        f"| {row.question} | {row.reached} | {row.spread} | {row.target} | {verdict[row.holds]} |" for row in rows
    ]
    return "\n".join(lines)


def show(rows: Sequence[Row]) -> None:
    """What a benchmark prints when it is run alone."""
    print(describe_machine())
    for row in rows:
        spread = f" ({row.spread})" if row.spread else ""
        verdict = {True: "holds", False: "MISSED", None: ""}[row.holds]
        print(f"  {row.question}: {row.reached}{spread}   {row.target}   {verdict}".rstrip())


def _texts(reached: Spread, unit: str) -> tuple[str, str]:
    return f"{_number(reached.median)}{unit}", f"{_number(reached.low)}–{_number(reached.high)}"


def _number(value: float) -> str:
    """Three digits that count, and no power of ten."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
