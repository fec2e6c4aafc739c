"""Losses: what a batch costs, given the scores of each action's item (first) and of items drawn beside it.

- `bce` asks of each pair by itself whether it happened (binary cross-entropy; the paper's).
- `softmax` asks which of the items was chosen (cross-entropy over all of them). The top of a ranking gains most.
- `bpr` asks of two items which one was chosen.

With a teacher, the answer is what the teacher expects: a probability of each pair, a distribution over the items, a
probability that the first of two is chosen.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .batches import Batch
from .models import Recommender
from .scoring import ModelInputs
from .training import Similarity

Loss = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
"""Scores [batch, 1 + n], those of a teacher if there is one, and weights (0 where there is no item) -> a number."""


def _bce(scores: Tensor, expected: Tensor | None, weight: Tensor | None) -> Tensor:
    targets = _first(scores) if expected is None else expected.sigmoid()
    return F.binary_cross_entropy_with_logits(scores, targets, weight)


def _softmax(scores: Tensor, expected: Tensor | None, weight: Tensor | None) -> Tensor:
    if weight is not None:
        scores = scores.masked_fill(weight == 0, -torch.inf)
        expected = None if expected is None else expected.masked_fill(weight == 0, -torch.inf)
    if expected is None:
        return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.int64, device=scores.device))
    logs = F.log_softmax(scores, -1)
    return -(expected.softmax(-1) * logs.masked_fill(logs == -torch.inf, 0)).sum(-1).mean()


def _bpr(scores: Tensor, expected: Tensor | None, weight: Tensor | None) -> Tensor:
    lead = scores[:, :1] - scores[:, 1:]
    targets = torch.ones_like(lead) if expected is None else (expected[:, :1] - expected[:, 1:]).sigmoid()
    return F.binary_cross_entropy_with_logits(lead, targets, None if weight is None else weight[:, 1:])


def _first(scores: Tensor) -> Tensor:
    """One for what the user chose, zero for the items drawn beside it."""
    targets = torch.zeros_like(scores)
    targets[:, 0] = 1
    return targets


LOSSES: dict[str, Loss] = {"bce": _bce, "softmax": _softmax, "bpr": _bpr}
"""Every loss by its name in flags and files. A new one is a function, and a word in `training.LossName`."""


def shared_softmax(
    model: Recommender, inputs: ModelInputs, batch: Batch, *, temperature: float, similarity: Similarity
) -> Tensor:
    """The softmax of a batch whose actions share their negatives: which item was chosen, it or one of these?

    All scores cost one matrix product of distinct users and negatives, whatever number of actions a user has. They are
    divided by the length of the user's vector, which changes no ranking but would be a temperature of each user's own,
    and by the temperature. With `cosine` they are divided by the length of the item's vector, too; with `product` they
    stay as they are. Items that a user has chosen are no negatives of this user.
    """
    assert batch.shared is not None
    users, items, user, item, item_ids = inputs.of_batch(batch)
    left = model.prepare_users(model.user_vectors(users))
    right = model.prepare_items(model.item_vectors(items, item_ids))
    left = left if similarity == "product" else F.normalize(left) / temperature
    right = F.normalize(right) if similarity == "cosine" else right
    chosen = (left.index_select(0, user) * right.index_select(0, item[:, 0])).sum(-1)
    others = left @ right.index_select(0, batch.shared.place).mT
    if batch.shared.correction is not None:
        others = others - batch.shared.correction
    # Not minus infinity: a user who has chosen all of them would make the gradient NaN.
    others.index_put_(tuple(batch.shared.own), others.new_tensor(torch.finfo(others.dtype).min / 2))
    return F.softplus(others.logsumexp(-1).index_select(0, user) - chosen).mean()
