"""The passes through a stream: every batch is predicted, and then learned from.

So the reported AUC is that of a model on actions that it has not seen. `learn_stream` is for the `StreamLearner`,
`train_on_stream` for any other model that is open to new ids, also by several processes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..kernels import Floats
from ..kernels.idle_cores import on_idle_cores
from ..kernels.resources import keeping_freed_memory
from .distributed import Processes, average_buffers, share_gradients
from .models import Recommender
from .stream_learner import StreamLearner
from .stream_samples import RESERVOIR, Reservoir
from .training import TrainConfig
from .training_loop import adam

_Ids = NDArray[np.int64]


@dataclass(frozen=True)
class StreamReport:
    """What is known after some batches; `auc` is the mean since the start, `recent_auc` that of the latest batches.

    These are against items drawn from all that were seen. `popular_auc`, of the latest batches too, is against items
    drawn by popularity; only the `StreamLearner` draws such.
    """

    num_actions: int
    loss: float
    auc: float
    recent_auc: float
    popular_auc: float = float("nan")


class Running:
    """Means over the batches of a stream, as a report has them. `state` are those of an earlier one, to go on with."""

    def __init__(self, state: Sequence[float | None] = (0.0, 0.0, 0.0, None, None)) -> None:
        self._sums = np.array(state[:3], np.float64)  # actions, losses, AUCs
        self._recent = np.array([np.nan if value is None else value for value in state[3:]])

    def state(self) -> list[float | None]:
        """Plain values."""
        return [*self._sums.tolist(), *(None if value != value else value for value in self._recent.tolist())]

    def add(self, count: int, *, loss: float, auc: float, popular_auc: float = float("nan")) -> StreamReport:
        """What is known after a further batch of `count` actions."""
        self._sums += (count, count * loss, count * auc)
        own = np.array([auc, popular_auc])
        self._recent = np.where(np.isnan(self._recent), own, 0.98 * self._recent + 0.02 * own)
        return self.report()

    def report(self) -> StreamReport:
        """What is known."""
        return StreamReport(int(self._sums[0]), *map(float, (*self._sums[1:] / self._sums[0], *self._recent)))


@keeping_freed_memory()
def learn_stream(
    learner: StreamLearner,
    batches: Iterable[tuple[_Ids, _Ids]],
    *,
    on_batch: Callable[[StreamReport], None] | None = None,
) -> StreamReport:
    """Predict, then learn, batches of (user ids, item ids) with a `StreamLearner`.

    Args:
        learner: It is changed in place.
        batches: Users and items of actions, int64 [actions] each, in order.
        on_batch: Is told what is known after each batch.

    Returns:
        What is known at the end.

    Raises:
        ValueError: There was no batch.

    Example:
        ```python
        import numpy as np
        from tableless.recommender.streaming import learn_stream
        from tableless.recommender.stream_learner import StreamLearner

        random = np.random.default_rng(0)
        batches = [(random.integers(0, 50, 256), random.integers(0, 20, 256)) for _ in range(8)]
        print(learn_stream(StreamLearner("1MB"), batches).auc)
        ```
    """
    running, report = Running(), None
    for users, items in batches:
        report = learn_batch(learner, users, items, running)
        if on_batch:
            on_batch(report)
    if report is None:
        raise ValueError("the stream was empty")
    return report


def learn_batch(learner: StreamLearner, users: _Ids, items: _Ids, running: Running) -> StreamReport:
    """Predict a batch, then learn it. Returns what is known then."""
    prediction = learner.predict(users, learner.candidates(items))
    auc, popular_auc = (_batch_auc(part) for part in learner.by_kind_of_negative(prediction.scores))
    return running.add(len(users), loss=learner.learn(prediction), auc=auc, popular_auc=popular_auc)


@keeping_freed_memory()
def train_on_stream(
    model: Recommender,
    batches: Iterable[tuple[_Ids, _Ids]],
    config: TrainConfig,
    *,
    processes: Processes = Processes(),  # noqa: B008 - frozen
    reservoir: Reservoir | None = None,
    on_batch: Callable[[StreamReport], None] | None = None,
) -> StreamReport:
    """Predict, then learn from, batches of (user ids, item ids), in place.

    Negatives come from a reservoir of the items seen so far, each as likely as any other, as in `train_model`. There is
    no list of a user's own items, so a negative may now and then be one of them.
    """
    if not model.answers_new_ids:
        raise ValueError("a stream brings ids nobody has numbered; take a scheme that is open to new ids, such as dhe")
    device = next(model.parameters()).device
    step = share_gradients(_Scores(model), processes)
    optimizer = adam(model, config)
    reservoir = reservoir or Reservoir(RESERVOIR, config.seed + processes.rank)
    for scheme in (model.users, model.items):
        scheme.expect_training_from_nothing()  # a stream has no table to start from
    model.train()
    running, report = Running(), None
    # Shares may differ by a batch; whoever is done first answers the others' calls until they are done too.
    waiting = step.join() if isinstance(step, DistributedDataParallel) else contextlib.nullcontext()
    with waiting:
        for users, items in batches:
            reservoir.offer(items)
            drawn = reservoir.draw(len(items), config.negatives(are_shared=False))
            candidates = np.concatenate([items[:, None], drawn], axis=1)
            distinct_users, user = np.unique(users, return_inverse=True)
            distinct_items, item = np.unique(candidates, return_inverse=True)
            with on_idle_cores():
                scores = step(*(
                    torch.from_numpy(array).to(device)
                    for array in (distinct_users, distinct_items, user, item.reshape(candidates.shape))
                ))  # fmt: skip
                auc = _batch_auc(
                    scores.detach().numpy(force=True)
                )  # before the step: these actions are still unknown to the model
                chosen = torch.zeros_like(scores)
                chosen[:, 0] = 1
                loss = F.binary_cross_entropy_with_logits(scores, chosen)
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
            report = running.add(len(users), loss=float(loss.detach()), auc=auc)
            if on_batch:
                on_batch(report)
    if report is None:
        raise ValueError("the stream was empty")
    average_buffers(model, processes)
    return report


class _Scores(nn.Module):
    """The scores of a batch, as a module of its own so that DistributedDataParallel can wrap it."""

    def __init__(self, model: Recommender) -> None:
        super().__init__()
        self.model = model

    def forward(self, users: Tensor, items: Tensor, user: Tensor, item: Tensor) -> Tensor:
        return self.model.score_distinct(users, items, user, item)


def _batch_auc(scores: Floats) -> float:
    """The share of negatives below their positive, which is the first of each row; a tie counts half."""
    chosen, others = scores[:, :1], scores[:, 1:]
    return float((others < chosen).mean() + (others == chosen).mean() / 2)
