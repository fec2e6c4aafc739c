"""Training from a stream: no vocabulary, no preparation, each process reads its own share once.

Every batch is first predicted and then learned from, so the reported AUC is that of a model on actions it has not seen.
A GMF of `dhe` is learned by the `StreamLearner`. Any other model that is open to new ids is learned by gradients alone,
also by several processes, and forgets more (`train_on_stream`). `run_stream` is what `train --stream` does.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..data.config import DataConfig
from ..data.loading import find_data
from ..data.reading.batches import dropped_in_words
from ..data.reading.files import sniff, stream_actions
from ..embedding.budget import is_share, resolve_budget
from ..kernels import Floats
from ..kernels.idle_cores import on_idle_cores
from ..kernels.resources import keeping_freed_memory
from .distributed import Processes, average_buffers, share_gradients
from .models import Recommender, find_backbone
from .run_directory import RunDirectory, item_list
from .runs import ModelConfig, choose_device, describe_run, size_scheme
from .stream_learner import StreamConfig, StreamLearner
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
    """Means over the batches of a stream, as a report has them."""

    def __init__(self) -> None:
        self._sums = np.zeros(3)  # actions, losses, AUCs
        self._recent = np.full(2, np.nan)

    def add(self, count: int, *, loss: float, auc: float, popular_auc: float = float("nan")) -> StreamReport:
        """What is known after a further batch of `count` actions."""
        self._sums += (count, count * loss, count * auc)
        own = np.array([auc, popular_auc])
        self._recent = np.where(np.isnan(self._recent), own, 0.98 * self._recent + 0.02 * own)
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
        prediction = learner.predict(users, learner.candidates(items))
        auc, popular_auc = (_batch_auc(part) for part in learner.by_kind_of_negative(prediction.scores))
        report = running.add(len(users), loss=learner.learn(prediction), auc=auc, popular_auc=popular_auc)
        if on_batch:
            on_batch(report)
    if report is None:
        raise ValueError("the stream was empty")
    return report


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


def run_stream(
    data: DataConfig,
    model_config: ModelConfig,
    train_config: TrainConfig,
    *,
    half_life: int | None = None,
    out: Path | str | None = None,
    device: str = "auto",
    processes: Processes = Processes(),  # noqa: B008 - frozen
    on_note: Callable[[str], None] | None = None,
    on_batch: Callable[[StreamReport], None] | None = None,
) -> dict[str, Any]:
    """Train on a stream, each process on its own share; with `out`, leave a run directory.

    `half_life` is that of popularity, in actions. `on_note` is told which columns are read, and in the end how many
    rows of the share were dropped.
    """
    start = time.perf_counter()
    if is_share(model_config.budget):
        raise ValueError(
            f"a budget of {model_config.budget} is a share of a full table, or bytes for each id, and a stream has no "
            'known vocabulary; give memory ("1.5MB") or a number of parameters ("1000000 parameters")'
        )
    if out is not None and processes.is_first:
        RunDirectory(out).require_free()
    files = find_data(data.data, data_dir=data.data_dir)
    sniffed = sniff(files, user_col=data.user_col, item_col=data.item_col, time_col="", rules=data.row_rules)
    tell = on_note or (lambda remark: None)
    for remark in (str(sniffed), *sniffed.remarks):
        tell(remark)
    allowed = resolve_budget(model_config.budget, embedding_dim=model_config.embedding_dim, vocab_size=1)
    dropped: Counter[str] = Counter()
    batches = stream_actions(
        sniffed,
        rank=processes.rank,
        world_size=processes.world_size,
        batch_size=max(1, train_config.batch_size // processes.world_size),
        dropped=dropped,
    )
    on_device = choose_device(device)
    model: Recommender
    if has_learner(model_config, processes, on_device):
        learner = StreamLearner(allowed, stream_config(model_config, train_config, half_life))
        report = learn_stream(learner, batches, on_batch=on_batch)
        model, reservoir = learner.model(), learner.seen
    else:
        schemes = [
            size_scheme(model_config, allowed.share(1, 2), 1, seed=2 * train_config.seed + side) for side in range(2)
        ]
        model = find_backbone(model_config.backbone)(users=schemes[0], items=schemes[1], seed=train_config.seed)
        model.to(on_device)
        reservoir = Reservoir(RESERVOIR, train_config.seed + processes.rank)
        report = train_on_stream(
            model, batches, train_config, processes=processes, reservoir=reservoir, on_batch=on_batch
        )
    for remark in dropped_in_words(dropped):
        tell(remark)
    results = {
        "auc": report.auc,
        "recent_auc": report.recent_auc,
        "actions": report.num_actions,
        **model.sizes(num_ids=None),
        "seconds": round(time.perf_counter() - start, 2),
    }
    model.pack()
    if out is not None and processes.is_first:
        kinds = sniffed.kinds
        config = describe_run(data, model, model_config, train_config, {"user": kinds.user, "item": kinds.item})
        # Names of strings are not kept, because a stream is not for listing. Their ids are.
        items = item_list(reservoir.values)
        RunDirectory(out).write(config, model.state_dict(), items=items, results=results)
    return results


def has_learner(model: ModelConfig, processes: Processes, device: torch.device) -> bool:
    """Is such a model learned by the `StreamLearner`? It works on the CPU, in one process, and chooses its networks."""
    is_usual = model.scheme == "dhe" and model.backbone == "gmf" and not model.options
    return is_usual and processes.world_size == 1 and device.type == "cpu"


def stream_config(model: ModelConfig, training: TrainConfig, half_life: int | None) -> StreamConfig:
    """How the learner learns, as far as the user says it."""
    default = TrainConfig()
    for name in ("learning_rate", "weight_decay"):
        if getattr(training, name) != getattr(default, name):
            raise ValueError(
                f"{name} is {getattr(training, name)}, but a stream with the scheme dhe has rates of its own for rows, "
                "networks and popularity; leave it out, or take another scheme"
            )
    given: dict[str, Any] = {"num_negatives": training.num_negatives, "half_life": half_life}
    given = {name: value for name, value in given.items() if value is not None}
    return StreamConfig(embedding_dim=model.embedding_dim, seed=training.seed, **given)
