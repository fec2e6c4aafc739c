"""What finished runs say: a mean with its spread, the paired difference of two sets of runs, or nothing yet."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tableless.recommender.lines import Line

from .running import Settings, key

NOT_RUN = "not run yet"
INFEASIBLE = "–"

# The 97.5 % points of Student's t, by degrees of freedom: what a 95 % interval of so few seeds needs.
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


class Finished:
    """The finished runs of an experiment, found by their settings."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._by_key = {key(line): line for line in lines}

    def line(self, run: Settings) -> Line | None:
        """The line of a run, if there is one."""
        return self._by_key.get(key(run))

    def values(self, runs: Sequence[Settings], metric: str = "auc") -> list[float]:
        """One result of each run that has it; `a.b` is the result b within a."""
        results = [line.get("results") for run in runs if (line := self.line(run))]
        found = [_look_up(result, metric) for result in results if result is not None]
        return [value for value in found if value is not None]

    def cell(self, runs: Sequence[Settings], metric: str = "auc", *, scale: float = 100, digits: int = 2) -> str:
        """Mean ± standard deviation over the runs (which differ by seed), in per cent unless told otherwise."""
        lines = [line for run in runs if (line := self.line(run))]
        values = [scale * value for value in self.values(runs, metric)]
        if not lines:
            return NOT_RUN
        if not values:
            return INFEASIBLE
        spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
        missing = f" ({len(values)} of {len(runs)} seeds)" if len(values) < len(runs) else ""
        return f"{statistics.mean(values):.{digits}f}{spread}{missing}"

    def mean(self, runs: Sequence[Settings], metric: str = "auc") -> float | None:
        """The mean over the runs, if there are any."""
        values = self.values(runs, metric)
        return statistics.mean(values) if values else None

    def difference(
        self, runs: Sequence[Settings], others: Sequence[Settings], metric: str = "auc"
    ) -> Difference | None:
        """How far `runs` are above `others`, run by run; both list their seeds in order, one of them perhaps fewer."""
        pairs = [
            (self.values([run], metric), self.values([other], metric)) for run, other in zip(runs, others, strict=False)
        ]
        differences = [own[0] - rival[0] for own, rival in pairs if own and rival]
        return Difference.of(differences) if differences else None


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences, with half the width of its 95 % interval (None: a single pair has none)."""

    mean: float
    half_width: float | None
    pairs: int

    @classmethod
    def of(cls, differences: Sequence[float]) -> Difference:
        """From the differences themselves, one or more."""
        count = len(differences)
        width = None
        if count > 1:
            width = _T.get(count - 1, 1.96) * statistics.stdev(differences) / math.sqrt(count)
        return cls(statistics.mean(differences), width, count)

    @property
    def is_clear(self) -> bool:
        """Does the interval leave out zero?"""
        return self.half_width is not None and abs(self.mean) > self.half_width

    def __str__(self) -> str:
        """In hundredths of the AUC's range, as everywhere in the report."""
        pairs = f"{self.pairs} pair{'s' if self.pairs > 1 else ''}"
        if self.half_width is None:
            return f"{100 * self.mean:+.2f} ({pairs}, no interval)"
        return f"{100 * self.mean:+.2f} ± {100 * self.half_width:.2f} ({pairs})"


def _look_up(result: Line, metric: str) -> float | None:
    value: object = result
    for part in metric.split("."):
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return float(value) if isinstance(value, (int, float)) else None
