"""Training: how it is done, what an epoch leaves behind, and when it ends. `training_loop.py` has the loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

from torch import Tensor

from ..hints import require_choice

LossName = Literal["auto", "bce", "softmax", "bpr"]
Similarity = Literal["direction", "cosine", "product"]
Selection = Literal["auto", "auc", "ndcg@10"]
_CHOICES: dict[str, tuple[str, ...]] = {
    "schedule": ("constant", "one-cycle"),
    "recipe": ("fast", "paper"),
    "loss": get_args(LossName),
    "similarity": get_args(Similarity),
    "select": get_args(Selection),
}

LEAST_GAIN = 2e-4
"""What several epochs must add to the validation AUC to count as progress. Two seeds may differ by less."""
FAR_MORE = 5
"""So many times the patience, for a model that is no better than popularity yet."""


@dataclass(frozen=True)
class TrainConfig:
    """How to train; the defaults are the paper's where it says (Adam, 1e-3), with our reason where it does not.

    Attributes:
        epochs: At most this many passes over the data. A run is meant to end before, by `patience`.
        batch_size: Actions per step.
        num_negatives: Items that the user did not choose, drawn for each action. With `softmax` over inner products
            all actions of a batch share them. `None`: 512 shared ones, 4,096 for `whole_users`, else 4.
        learning_rate: Of AdamW.
        weight_decay: Of AdamW; full tables gain from 0.1 to 0.3.
        patience: Epochs without a better validation AUC before training stops; five times as many for a model that is
            not better than popularity yet.
        schedule: Of the learning rate: `"constant"` or `"one-cycle"`.
        recipe: `"fast"`: learn from a full table that is trained first. `"paper"`: from nothing, as published.
        loss: What is learned from actions: `"bce"`, the paper's, asks of each pair whether it happened, `"softmax"`
            which item of many was chosen, `"bpr"` which one of two. `"auto"`: `softmax` by the recipe `fast` where
            scores are inner products, as those of a GMF are; else `bce`.
        temperature: Scores are divided by it where negatives are shared. `None`: the fewer actions there are for each
            id, the higher, from 0.2 at a hundred to 0.4 at three; lower where actions follow very clear patterns.
        similarity: What a score is where negatives are shared: an item's vector along the user's `"direction"`, the
            `"cosine"` of both (full tables alone), or the inner `"product"`. A model that learns from a table has the
            scores of the table to learn.
        whole_users: Does a batch have all actions of some users? Where users have many actions, a softmax with shared
            negatives then costs far less. Full tables of such data are trained so in any case.
        popularity: Shared negatives are drawn by popularity to this power, and their scores corrected for it.
        select: The measure on validation data that decides which epoch is kept, and when training ends. `"auto"`: where
            lists are learned from a table, which is for their first places, it is `"ndcg@10"`; else `"auc"`.
        seed: Everything random follows from it.

    Example:
        ```python
        import tableless

        config = tableless.TrainConfig(epochs=20, recipe="paper", seed=1)
        ```
    """

    epochs: int = field(
        default=300,  # a limit that is hardly ever reached
        metadata={"help": "At most this many passes over the data; it is meant to end before."},
    )
    batch_size: int = field(
        default=2048,  # large enough for matrix products, small enough for 500 steps an epoch on MovieLens-1M
        metadata={"help": "Actions per step."},
    )
    num_negatives: int | None = field(
        default=None,
        metadata={
            "option": "--negatives-per-positive",
            "help": "Sampled items the user did not choose; with softmax a batch shares them. Unless given, 4 or 512.",
        },
    )
    learning_rate: float = field(default=1e-3, metadata={"help": "Of Adam."})
    weight_decay: float = field(default=0.0, metadata={"help": "Of AdamW; full tables gain from 0.1 to 0.3."})
    patience: int = field(
        default=10,  # `has_ended` is the rule
        metadata={"help": "Epochs without a better validation AUC before it stops (below popularity: five times)."},
    )
    schedule: Literal["constant", "one-cycle"] = "constant"
    recipe: Literal["fast", "paper"] = field(
        default="fast",  # recipes.py has both
        metadata={"help": "fast: learn from a full table that is trained first; paper: from nothing, as published."},
    )
    loss: LossName = field(
        default="auto",  # `with_loss` in stage_settings.py
        metadata={
            "help": "bce: is each pair likely; softmax: which item of many; bpr: which of two; "
            "auto: softmax for gmf by the recipe fast, else bce."
        },
    )
    temperature: float | None = field(
        default=None,
        metadata={
            "help": "Of the softmax over shared negatives: lower looks at the top alone. Unless given, by the data."
        },
    )
    similarity: Similarity = field(
        default="direction", metadata={"help": "What the softmax compares; cosine is for full tables."}
    )
    whole_users: bool = False  # no option of the commands: the recipe sets it
    popularity: float = field(
        default=0.0, metadata={"help": "Draw shared negatives by popularity to this power (and correct for it)."}
    )
    select: Selection = field(
        default="auto",  # `with_selection` in stage_settings.py
        metadata={
            "help": "The validation measure that decides which epoch is kept. auto: ndcg@10 where lists are learned "
            "from a table, else auc."
        },
    )
    seed: int = field(default=0, metadata={"help": "Everything random follows from it."})

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            require_choice(name, getattr(self, name), choices)
        if self.temperature is not None and not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}; it must be above 0, such as 0.25")

    @property
    def deciding_measure(self) -> str:
        """The measure that decides, where the stage has not set another one."""
        return "auc" if self.select == "auto" else self.select

    def shares_negatives(self, *, scores_are_products: bool) -> bool:
        """Do all actions of a batch have the same negatives? Where a score costs a network, these would be too many."""
        return self.loss == "softmax" and scores_are_products

    def temperature_for(self, actions_per_id: float, beyond_chance: float = 1.0) -> float:
        """The temperature for such data (docs/tried.md).

        Where little is known of each id, looking at the top alone overfits; where actions follow clear patterns
        (`spectrum.beyond_chance`), it does not.
        """
        by_patterns = min(1.0, 1.6 / max(beyond_chance, 1e-12)) ** 2
        return self.temperature or 0.5 * max(actions_per_id, 1.0) ** -0.2 * by_patterns

    def negatives(self, *, are_shared: bool) -> int:
        """How many are drawn, for each action or for a batch."""
        if self.num_negatives is not None:
            return self.num_negatives
        if not are_shared:
            return 4  # as in NCF
        return 4096 if self.whole_users else 512


@dataclass(frozen=True)
class EpochReport:
    """What is known after an epoch."""

    epoch: int
    loss: float
    validation_auc: float
    seconds: float  # of training, without the validation
    examples_per_second: float
    is_best: bool
    has_ended: bool = False  # by the stopping rule; False where it may go on, or was cut off by the limit of epochs
    selected: float | None = None  # the measure that decides, where it is not the AUC

    @property
    def deciding(self) -> float:
        """The value of the measure that decides which epoch is the best."""
        return self.validation_auc if self.selected is None else self.selected


class Journal(Protocol):
    """Where training leaves what must survive it (journal.py has the one that writes a directory)."""

    def resume(self) -> tuple[list[EpochReport], dict[str, Tensor]]:
        """The epochs done so far and the state after the last of them; empty if there is nothing to resume."""

    def start(self) -> tuple[dict[str, Tensor], list[dict[str, Any]]] | None:
        """What training began with (weights, a teacher) and the stages before, if an earlier attempt got that far."""

    def keep_start(self, model: Mapping[str, Tensor], stages: Sequence[Mapping[str, Any]]) -> None:
        """Keep what training begins with, where getting there took time, and what was done for it."""

    def record(self, report: EpochReport, model: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Keep the report, the state to resume from and, if it is the best so far, the model."""


def has_ended(aucs: Sequence[float], patience: int, *, floor: float) -> bool:
    """The one stopping rule: `patience` epochs gained less than `LEAST_GAIN` of validation AUC (or what is selected).

    A model that is not above `floor`, the level of popularity, has hardly begun, and gets `FAR_MORE` patience. (Hash
    embedding stays there for twenty epochs, and rises then.)
    """
    reference, last = -1.0, 0
    for epoch, auc in enumerate(aucs):
        if auc >= reference + LEAST_GAIN:
            reference, last = auc, epoch
    return len(aucs) - 1 - last >= patience * (1 if reference > floor else FAR_MORE)


def is_capped(reports: Sequence[EpochReport], config: TrainConfig) -> bool:
    """Did it end at its limit of epochs, when it might have become better? A schedule of one cycle ends by itself."""
    at_limit = len(reports) >= config.epochs and not (reports and reports[-1].has_ended)
    return config.schedule == "constant" and at_limit
