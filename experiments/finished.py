"""What finished runs say: a mean with its spread, the paired difference of two sets of runs, or nothing yet."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tableless.files.whole import Line

from .running import Settings, key

try:
    from scipy import stats
except ImportError:
    raise ImportError("intervals are computed by scipy: pip install 'tableless[experiments]'") from None

NOT_RUN = "not run yet"
INFEASIBLE = "–"
CAPPED_MARK = "†"
"""Behind a figure of runs of which at least one ended at its limit of epochs, when it might still have risen."""

SHOWN = {"auc": "AUC, %", "ndcg@10": "NDCG@10, %"}
"""The metrics that tables and pictures show: the AUC alone flatters, since it counts places that nobody sees."""

# Lines from before runs wrote down `capped`: these schemes ended by a tuning stage of fixed length.
_TUNED_BEFORE = ("dhe", "head-and-tail")


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

    def capped(self, runs: Sequence[Settings]) -> bool:
        """Did one of the runs end at its limit of epochs?"""
        return any(is_capped(line) for run in runs if (line := self.line(run)))

    def cell(self, runs: Sequence[Settings], metric: str = "auc") -> str:
        """An accuracy in per cent: mean ± standard deviation over the runs, which differ by seed; marked if capped."""
        return self._text(runs, metric, 100, 2, CAPPED_MARK if self.capped(runs) else "")

    def cells(self, runs: Sequence[Settings]) -> list[str]:
        """A cell for each metric that is shown."""
        return [self.cell(runs, metric) for metric in SHOWN]

    def plain(self, runs: Sequence[Settings], metric: str, *, scale: float = 1, digits: int = 0) -> str:
        """Any other figure, as it is: parameters, seconds, what popularity has."""
        return self._text(runs, metric, scale, digits, "")

    def _text(self, runs: Sequence[Settings], metric: str, scale: float, digits: int, mark: str) -> str:
        lines = [line for run in runs if (line := self.line(run))]
        values = [scale * value for value in self.values(runs, metric)]
        if not lines:
            return NOT_RUN
        if not values:
            return INFEASIBLE
        spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
        missing = f" ({len(values)} of {len(runs)} seeds)" if len(values) < len(runs) else ""
        return f"{statistics.mean(values):.{digits}f}{mark}{spread}{missing}"

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

    def measured_on(self, runs: Sequence[Settings]) -> str:
        """A sentence that says on how many users the runs were measured, and how exact an AUC is therefore."""
        results = [line["results"] for run in runs if (line := self.line(run)) and "results" in line]
        counts = sorted({(each["evaluated"], each["held_out"]) for each in results if "evaluated" in each})
        if not counts:
            return ""
        users = "; ".join(f"{evaluated:,} of {held_out:,}" for evaluated, held_out in counts)
        errors = [each["auc_se"] for each in results if "auc_se" in each]
        error = f"; standard error of an AUC over users: at most {100 * max(errors):.2f} points" if errors else ""
        drawn = sorted({each["auc_items"] for each in results if each.get("auc_items")})
        items = f"; AUC against {', '.join(map(str, drawn))} items drawn for each user" if drawn else ""
        return f"Held-out actions measured: {users}{error}{items}."


def is_capped(line: Line) -> bool:
    """Did a stage that should end by itself end at its limit of epochs? Old lines do not say it: their epochs do."""
    results = line.get("results", {})
    if "capped" in results:
        return bool(results["capped"])
    training = line.get("train", line)
    limit = training.get("epochs")
    if limit is None or results.get("epochs") != limit:
        return False
    return training.get("recipe") != "fast" or line.get("model", {}).get("scheme") not in _TUNED_BEFORE


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
            width = float(stats.t.ppf(0.975, count - 1)) * statistics.stdev(differences) / math.sqrt(count)
        return cls(statistics.mean(differences), width, count)

    @property
    def is_clear(self) -> bool:
        """Does the interval leave out zero?"""
        return self.half_width is not None and abs(self.mean) > self.half_width

    def __str__(self) -> str:
        """In hundredths of the metric's range, as everywhere in the report."""
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
