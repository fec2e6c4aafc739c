"""Losses: what a training step makes smaller.

A batch of actions costs what its scores say: those of each action's item (first) and of items drawn beside it.

- `bce` asks of each pair by itself whether it happened (binary cross-entropy; the paper's).
- `softmax` asks which of the items was chosen (cross-entropy over all of them). The top of a ranking gains most.
- `bpr` asks of two items which one was chosen.

With a teacher, the answer is what the teacher expects: a probability of each pair, a distribution over the items, a
probability that the first of two is chosen.

A batch of lists is for the last stage of the fast recipe, where a student learns to order items as its table does. It
has some users, and a list of items that all of them order. What the table expects of a user is a distribution over the
list: a softmax of its scores, divided by their standard deviation for this user. So every user counts the same,
whatever the loss of the table was, and the top of the list counts most. The student's scores are divided by their own
standard deviation: the length of a user's vector changes no ranking, and some schemes do not keep it. Beside a loss of
single pairs, this keeps the AUC, gains at the top, and takes about half of the time (docs/tried.md). Scores must be
inner products: a list then costs one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.splits import Split
from .batches import Batch
from .distributed import Processes
from .models import Recommender
from .scoring import ModelInputs
from .training import Similarity

Loss = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
"""Scores [batch, 1 + n], those of a teacher if there is one, and weights (0 where there is no item) -> a number."""

_USERS, _ITEMS = 1024, 1024  # of a batch of lists
_AT_A_TIME = 128  # users of a batch of lists
_FEWEST_STEPS = 40  # of an epoch: where there are few users, each comes several times


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


@dataclass(frozen=True)
class ListBatch:
    """Users and the items that each of them orders."""

    users: Tensor  # [n] rows
    items: Tensor  # [m] rows

    def to(self, device: torch.device) -> ListBatch:
        """The same batch where the model is."""
        return ListBatch(self.users.to(device), self.items.to(device))


class Lists:
    """Every known user at least once an epoch, each time with other items, in an order that the seed decides.

    Items are drawn by the square root of how often they were chosen: frequent ones stand at the top of most rankings.
    """

    def __init__(self, split: Split, *, seed: int, processes: Processes) -> None:
        self._seed, self._processes = seed, processes
        self._num_users, self._num_items = split.num_known_users, split.num_known_items
        counts = np.bincount(split.train.items, minlength=self._num_items)[: self._num_items]
        self._share = np.sqrt(counts + 1.0) / np.sqrt(counts + 1.0).sum()

    def __len__(self) -> int:
        return max(_FEWEST_STEPS, -(-self._num_users // _USERS))

    @property
    def num_scores(self) -> int:
        """Of an epoch."""
        return len(self) * min(_USERS, self._num_users) * min(_ITEMS, self._num_items)

    def epoch(self, number: int) -> Iterator[ListBatch]:
        """The batches of one epoch; under several ranks, this rank's users of each."""
        random = np.random.default_rng([self._seed, number])
        own = slice(self._processes.rank, None, self._processes.world_size)
        size, order = min(_USERS, self._num_users), np.empty(0, np.int64)
        for _ in range(len(self)):
            if len(order) < size:
                order = np.concatenate([order, random.permutation(self._num_users)])
            users, order = order[:size], order[size:]
            drawn = random.choice(self._num_items, min(_ITEMS, self._num_items), replace=False, p=self._share)
            yield ListBatch(torch.from_numpy(users[own]), torch.from_numpy(drawn))


class ListVectors(nn.Module):
    """The vectors whose inner products are the scores of a batch: of its users [n, dim] and its items [m, dim]."""

    def __init__(self, model: Recommender, split: Split) -> None:
        super().__init__()
        self.model, self._inputs = model, ModelInputs.of(model, split.train)

    def forward(self, batch: ListBatch) -> tuple[Tensor, Tensor]:
        """Without a constant that all scores have: it changes no order."""
        inputs, model = self._inputs, self.model
        users = model.prepare_users(model.user_vectors(inputs.users[batch.users]))
        return users, model.prepare_items(model.item_vectors(inputs.items[batch.items], inputs.item_ids[batch.items]))


class ListLoss(ListVectors):
    """How far the order of a batch is from what its teacher expects, as a module that can be shared by processes."""

    def forward(self, batch: ListBatch, expected: tuple[Tensor, Tensor]) -> Tensor:  # type: ignore[override]
        """The divergence of the two distributions, as a mean over the users.

        A constant of all scores would learn from nothing but rounding errors, which Adam makes large. The last term
        gives it a gradient of zero, because processes that share gradients must have one for every weight.
        """
        users, items = super().forward(batch)
        divergence: Tensor = _Divergence.apply(users, items, *expected)  # type: ignore[no-untyped-call]
        return divergence + 0 * self.model.score_all(users[:1], items[:1]).sum()


class _Divergence(torch.autograd.Function):
    """The divergence of what is wanted from the softmax of the standardised scores.

    A list has a million scores, and passes over so many numbers cost far more than the product that made them. So the
    gradients are written out, and everything is done for a few users at a time, whose scores stay in the cache.
    """

    @staticmethod
    def forward(ctx: Any, users: Tensor, items: Tensor, wanted_users: Tensor, wanted_items: Tensor) -> Tensor:
        total, by_user, by_item = users.new_zeros(()), list[Tensor](), torch.zeros_like(items)
        parts = (torch.split(side, _AT_A_TIME) for side in (users, wanted_users))
        for some, wanted_some in zip(*parts, strict=True):
            wanted, _ = _standardised(wanted_some @ wanted_items.mT)
            standardised, deviation = _standardised(some @ items.mT)
            # The largest of 1,024 standardised numbers is at most 32, so that no maximum need be taken off before.
            chance, error = wanted.exp(), standardised.exp()
            sums, own_sums = chance.sum(-1, keepdim=True), error.sum(-1, keepdim=True)
            chance.div_(sums)
            error.div_(own_sums).sub_(chance)
            total += torch.dot(chance.view(-1), wanted.sub_(standardised).view(-1)) + (own_sums / sums).log().sum()
            # A change that only makes all scores of a user larger changes nothing. It is taken out of the gradient.
            along = (error * standardised).mean(-1, keepdim=True)
            slope = error.addcmul_(standardised, along, value=-1).div_(deviation * len(users))
            by_user.append(slope @ items)
            by_item.addmm_(slope.mT, some)
        ctx.save_for_backward(torch.cat(by_user), by_item)
        return total / len(users)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        by_user, by_item = ctx.saved_tensors
        return by_user * gradient, by_item * gradient, None, None


def _standardised(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Scores less their mean, divided by their standard deviation, for each user; and that deviation [n, 1]."""
    scores = scores.sub_(scores.mean(-1, keepdim=True))
    deviation = torch.linalg.vector_norm(scores, dim=-1, keepdim=True) / scores.shape[-1] ** 0.5
    deviation = deviation.clamp_min(1e-6)
    return scores.div_(deviation), deviation
