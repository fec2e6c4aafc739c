"""What the paper claims, each as a comparison of two sets of runs, and what our runs say to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .finished import NOT_RUN, Finished
from .running import Settings

SIMILAR = 0.002
"""Two AUCs no further apart than this count as "similar". A fifth of a point is our choice; the paper has no spread."""

REPRODUCED, UNCLEAR, UNDECIDED = "reproduced", "no clear difference", "undecided"
NOT_REPRODUCED, OPPOSITE, ONE_SEED = "not reproduced", "the opposite", "one seed only"
VERDICTS = [REPRODUCED, OPPOSITE, NOT_REPRODUCED, UNCLEAR, UNDECIDED, ONE_SEED, NOT_RUN]


@dataclass(frozen=True)
class Claim:
    """`runs` are said to be above `rivals` (or no worse, if `similar`), by `paper` points where it gives a number.

    Both list their runs in the same order of seeds; where one has fewer, the others are left out of the comparison.
    """

    says: str
    runs: Sequence[Settings]
    rivals: Sequence[Settings]
    paper: float | None = None
    similar: bool = False

    def row(self, finished: Finished) -> list[str]:
        """The claim, the paper's difference, ours with its interval, and the verdict."""
        difference = finished.difference(self.runs, self.rivals)
        paper = "" if self.paper is None else f"{self.paper:+.2f}"
        return [self.says, paper, str(difference) if difference else NOT_RUN, self.verdict(finished)]

    def verdict(self, finished: Finished) -> str:
        """In words; a difference counts only where its interval leaves out zero."""
        difference = finished.difference(self.runs, self.rivals)
        if difference is None:
            return NOT_RUN
        if difference.half_width is None:
            return ONE_SEED
        if self.similar:
            lowest = difference.mean - difference.half_width
            if lowest >= -SIMILAR:
                return REPRODUCED
            return NOT_REPRODUCED if difference.mean + difference.half_width < -SIMILAR else UNDECIDED
        if not difference.is_clear:
            return UNCLEAR
        return REPRODUCED if difference.mean > 0 else OPPOSITE
