"""What the paper claims, each as a comparison of two sets of runs, and what our runs say to it.

The same comparison may be made by two methods. *As published*: every model is trained end to end with Adam, DHE has the
paper's network (1024 hashes, five layers, batch norm, Mish), and all stop by the same rule; only that tests the paper.
*Ours*: every model is trained by the fast recipe and DHE has our network; that says what holds for the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .finished import NOT_RUN, Finished
from .running import Settings
from .training_runs import name_of_data

SIMILAR = 0.002
"""Two AUCs no further apart than this count as "similar". A fifth of a point is our choice; the paper has no spread."""

AS_PUBLISHED, OURS = "as published", "ours"
_METHODS = {"paper": AS_PUBLISHED, "fast": OURS}

REPRODUCED, UNCLEAR, UNDECIDED = "reproduced", "no clear difference", "undecided"
NOT_REPRODUCED, OPPOSITE, ONE_SEED = "not reproduced", "the opposite", "one seed only"
CAPPED = "stopped at the limit, no verdict"
VERDICTS = [REPRODUCED, OPPOSITE, NOT_REPRODUCED, UNCLEAR, UNDECIDED, ONE_SEED, CAPPED, NOT_RUN]
# Our method reproduces nothing: it is another one. It only agrees with what the paper says, or does not.
AGREES, DOES_NOT_AGREE = "agrees", "does not agree"
_WORDS_FOR_OURS = {REPRODUCED: AGREES, NOT_REPRODUCED: DOES_NOT_AGREE}
OUTCOMES = [_WORDS_FOR_OURS.get(verdict, verdict) for verdict in VERDICTS]


@dataclass(frozen=True)
class Claim:
    """`runs` are said to be above `rivals` (or no worse, if `similar`), by `paper` points where it gives a number.

    Both list their runs in the same order of seeds; where one has fewer, the others are left out of the comparison.
    All must have one recipe, one backbone and one dataset, and a number of the paper must be of that backbone: anything
    else would compare unlike things, and is refused.
    """

    says: str
    runs: Sequence[Settings]
    rivals: Sequence[Settings]
    paper: float | None = None
    paper_backbone: str = "gmf"
    similar: bool = False

    def __post_init__(self) -> None:
        backbone = self._shared("model", "backbone")
        self._shared("train", "recipe")
        self._shared("data", None)
        if self.paper is not None and backbone != self.paper_backbone:
            raise ValueError(f"{self.says}: the paper's number is of {self.paper_backbone}, the runs are of {backbone}")

    @property
    def method(self) -> str:
        """By which method the runs were made: as published, or ours."""
        return _METHODS[self._shared("train", "recipe")]

    @property
    def where(self) -> str:
        """On which data, with which backbone."""
        return f"{name_of_data(self._shared('data', None))}, {self._shared('model', 'backbone').upper()}"

    def row(self, finished: Finished) -> list[str]:
        """The claim, where it was tried, the paper's difference, ours (AUC, NDCG@10) with intervals, the verdict."""
        paper = "" if self.paper is None else f"{self.paper:+.2f}"
        ours = [str(finished.difference(self.runs, self.rivals, name) or NOT_RUN) for name in ("auc", "ndcg@10")]
        return [self.says, self.where, paper, *ours, self.verdict(finished)]

    def verdict(self, finished: Finished) -> str:
        """In words, by the AUC, which is what the paper has."""
        verdict = self._verdict(finished)
        return verdict if self.method == AS_PUBLISHED else _WORDS_FOR_OURS.get(verdict, verdict)

    def _verdict(self, finished: Finished) -> str:
        """A difference counts only where its interval leaves out zero, and all runs ended by themselves."""
        difference = finished.difference(self.runs, self.rivals)
        if difference is None:
            return NOT_RUN
        if finished.capped([*self.runs, *self.rivals]):
            return CAPPED
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

    def _shared(self, part: str, name: str | None) -> Any:
        """What all runs of both sides have in common."""
        found = [run[part] if name is None else run[part][name] for run in (*self.runs, *self.rivals)]
        if not found or any(each != found[0] for each in found):
            what = part if name is None else name
            raise ValueError(f"{self.says}: the two sides must have one {what}; they have {found}")
        return found[0]
