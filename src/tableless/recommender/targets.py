"""What a model is to say of each pair of a batch: what happened, or what a teacher expects."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .batches import Batch
from .models import Recommender
from .scoring import ModelInputs
from .splits import Split

Targets = Callable[[Batch], Tensor]
"""The probability [batch, 1 + num_negatives] that each is chosen."""


def what_happened(batch: Batch) -> Tensor:
    """One for what the user chose, zero for the items drawn beside it."""
    targets = torch.zeros(batch.item.shape, device=batch.item.device)
    targets[:, 0] = 1
    return targets


def what_is_expected(teacher: Recommender, split: Split) -> Targets:
    """The probabilities of a trained model.

    An action says of five pairs which one happened; the teacher says of each how likely it was, and was told by all
    actions. A model with fewer parameters learns more from the latter, and overfits later.
    """
    inputs = ModelInputs.of(teacher, split.train)

    @torch.no_grad()
    def targets(batch: Batch) -> Tensor:
        return teacher.score_distinct(*inputs.of_batch(batch)).sigmoid()

    return targets
