"""Training from a stream: no vocabulary, no preparation, each process reads its own share once.

Only schemes that are open to new ids can do this. Every batch is first predicted and then learned from, so the reported
AUC is that of a model on actions it has not seen. `run_stream` is what `train --stream` does.
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
from ..kernels.idle_cores import on_idle_cores
from ..kernels.resources import keeping_freed_memory
from .distributed import Processes, average_buffers, share_gradients
from .models import Recommender, find_backbone
from .run_directory import RunDirectory, item_list
from .runs import ModelConfig, choose_device, describe_run, size_scheme
from .stream_samples import RESERVOIR, Reservoir
from .training import TrainConfig
from .training_loop import adam

_Ids = NDArray[np.int64]

@dataclass(frozen=True)
class StreamReport:
    """What is known after some batches; `auc` is the mean since the start, `recent_auc` that of the latest batches."""

    num_actions: int
    loss: float
    auc: float
    recent_auc: float


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
    seen, losses, aucs = 0, 0.0, 0.0
    recent = float("nan")
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
                auc = _batch_auc(scores.detach())  # before the step: these actions are still unknown to the model
                chosen = torch.zeros_like(scores)
                chosen[:, 0] = 1
                loss = F.binary_cross_entropy_with_logits(scores, chosen)
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
            losses, aucs, seen = losses + float(loss.detach()) * len(users), aucs + auc * len(users), seen + len(users)
            recent = auc if recent != recent else 0.98 * recent + 0.02 * auc
            if on_batch:
                on_batch(StreamReport(seen, losses / seen, aucs / seen, recent))
    if not seen:
        raise ValueError("the stream was empty")
    average_buffers(model, processes)
    return StreamReport(seen, losses / seen, aucs / seen, recent)


class _Scores(nn.Module):
    """The scores of a batch, as a module of its own so that DistributedDataParallel can wrap it."""

    def __init__(self, model: Recommender) -> None:
        super().__init__()
        self.model = model

    def forward(self, users: Tensor, items: Tensor, user: Tensor, item: Tensor) -> Tensor:
        return self.model.score_distinct(users, items, user, item)


def _batch_auc(scores: Tensor) -> float:
    """The share of negatives below their positive, a tie counting half."""
    chosen, others = scores[:, :1], scores[:, 1:]
    return float(((others < chosen).float() + (others == chosen).float() / 2).mean())


def run_stream(
    data: DataConfig,
    model_config: ModelConfig,
    train_config: TrainConfig,
    *,
    out: Path | str | None = None,
    device: str = "auto",
    processes: Processes = Processes(),  # noqa: B008 - frozen
    on_note: Callable[[str], None] | None = None,
    on_batch: Callable[[StreamReport], None] | None = None,
) -> dict[str, Any]:
    """Train on a stream, each process on its own share; with `out`, leave a run directory.

    `on_note` is told which columns are read, and in the end how many rows of the share were dropped.
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
    schemes = [
        size_scheme(model_config, allowed.share(1, 2), 1, seed=2 * train_config.seed + side) for side in range(2)
    ]
    model = find_backbone(model_config.backbone)(users=schemes[0], items=schemes[1], seed=train_config.seed)
    model.to(choose_device(device))
    reservoir = Reservoir(RESERVOIR, train_config.seed + processes.rank)
    dropped: Counter[str] = Counter()
    batches = stream_actions(
        sniffed,
        rank=processes.rank,
        world_size=processes.world_size,
        batch_size=max(1, train_config.batch_size // processes.world_size),
        dropped=dropped,
    )
    report = train_on_stream(model, batches, train_config, processes=processes, reservoir=reservoir, on_batch=on_batch)
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
