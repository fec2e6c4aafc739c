"""Tuning: a model whose tables were replaced is trained further, to answer as the model before it did.

A scheme that was fitted to rows knows nothing of what the model does with them. In tuning it learns by the answers, on
inputs without labels, as in the last stage of our own recipe and with its rates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from ..hints import require_choice
from ..kernels.idle_cores import on_idle_cores
from ..kernels.resources import keeping_freed_memory
from .drop_in import DropIn
from .finishing import has_weights_to_round, in_float32, round_by_parts
from .fit_progress import FitProgress, FitReporter
from .model_calls import call_with, device_of, modes_kept, number_of
from .output_losses import AnswerKind, distillation_loss
from .scheme import EmbeddingScheme
from .tuning_loop import Best, Steps, drop_ins_of, go_over, measured

TunedWeights = Literal["tables", "all"]
_Batch = TypeVar("_Batch")

_EPOCHS = 10  # as in the last stage of our recipe
_RATE_OF_OTHERS = 1e-4  # of weights that were trained already; larger steps lead away from there
_MASK = "attention_mask"  # what models of transformers call it


@dataclass(frozen=True)
class Tuning:
    """How `tableless.tune` went.

    Attributes:
        losses: The mean loss of each epoch.
        metrics: What the metric said: before, and after each epoch. Empty without a metric.
        best_epoch: The epoch whose weights were kept, from 1 on; 0 if those of the start were the best.
        final_metric: What the metric says of the model as it was left, with its weights rounded. None without a metric.
        steps: How many steps were done.
        seconds: How long it took.

    Example:
        ```python
        import copy, torch, tableless

        model = torch.nn.Sequential(torch.nn.EmbeddingBag(1_000, 16), torch.nn.Linear(16, 1))  # one that is trained
        before = copy.deepcopy(model)
        tableless.replace_embeddings(model, budget="1/8", min_rows=1_000, scheme="low-rank")
        done = tableless.tune(model, before, [torch.randint(1_000, (64, 5)) for _ in range(4)], epochs=2)
        print(done.losses, done.best_epoch)
        ```
    """

    losses: tuple[float, ...]
    metrics: tuple[float, ...]
    best_epoch: int
    final_metric: float | None
    steps: int
    seconds: float


@on_idle_cores()
@keeping_freed_memory()
def tune(
    student: nn.Module,
    teacher: nn.Module,
    batches: Iterable[_Batch],
    *,
    weights: TunedWeights = "tables",
    epochs: int = _EPOCHS,
    learning_rate: float | None = None,
    kind: AnswerKind = "auto",
    temperature: float = 1.0,
    metric: Callable[[nn.Module], float] | None = None,
    patience: int | None = None,
    call: Callable[[nn.Module, _Batch], Any] | None = None,
    seed: int = 0,
    progress: Callable[[FitProgress], None] | bool | None = None,
) -> Tuning:
    """Train a model with replaced tables to answer as the model before it did. No labels are needed.

    Both models answer each batch in eval mode, as they will when they are used, and the student learns from the
    difference (`tableless.distillation_loss`). AdamW has a rate that rises for a tenth of the steps and then falls to
    nothing. Weights of 8 bits learn as float32, and are rounded by parts at the end. Schemes that were loaded packed
    are unpacked. Ctrl-C ends it after the batch at hand, with the best weights so far.

    Args:
        student: The model in which tables were replaced (`tableless.replace_embeddings`). It is changed in place.
        teacher: The model as it was: `copy.deepcopy(model)`, made before the tables were replaced.
        batches: Inputs, such as a DataLoader or a list: anything that can be gone over. A batch that is a dictionary is
            given as `model(**batch)` if the model's `forward` takes these names, a tuple as `model(*batch)`, and all
            else as `model(batch)`. Tensors are moved to the device of the model. An iterator, which can only be gone
            over once, is kept in memory.
        weights: What is trained: `"tables"`, the schemes in the place of tables and nothing else, or `"all"` weights of
            the model that are not frozen.
        epochs: How often it goes over the batches.
        learning_rate: The highest rate. Unless given it is that of our recipe: `tuning_rate` of each scheme, and 0.0001
            for other weights.
        kind: What the answers are, as in `tableless.distillation_loss`.
        temperature: As in `tableless.distillation_loss`.
        metric: Is called with the student (in eval mode, without gradients) before the first epoch and after each;
            higher is better. The best weights are kept; the start competes, too. Without it the last are kept.
        patience: End after so many epochs without a better metric. Unless given it goes on to the end, because most is
            gained there, where the rate comes down.
        call: How a batch is given to a model, if not as above: `call=lambda model, batch: model(batch[0])` leaves
            labels out.
        seed: The rounding follows from it. The order of the batches is yours.
        progress: Is called after every step with a `tableless.embedding.FitProgress`, whose `error` is the loss. Unless
            given, there is a bar if standard error is a terminal and rich is installed. False switches it off.

    Returns:
        How it went. The student has the mode that it had, and no gradients.

    Raises:
        TypeError: The model does not take a batch as it is given.
        ValueError: No table of the student was replaced, the teacher shares weights with it, or the answers cannot be
            compared. The message says what to do.
        FloatingPointError: The loss is not finite any more. The student has its best weights so far.

    Example:
        ```python
        import copy, torch, tableless

        model = torch.nn.Sequential(torch.nn.EmbeddingBag(1_000, 16), torch.nn.Linear(16, 1))  # one that is trained
        before = copy.deepcopy(model)
        tableless.replace_embeddings(model, budget="1/8", min_rows=1_000, scheme="low-rank")
        inputs = [torch.randint(1_000, (64, 5)) for _ in range(4)]
        tableless.tune(model, before, inputs, epochs=2)
        ```
    """
    require_choice("weights", weights, get_args(TunedWeights))
    if epochs < 1:
        raise ValueError(f"epochs is {epochs}; it must be at least 1")
    start, tables = time.perf_counter(), [drop_in.scheme for drop_in in drop_ins_of(student)]
    for scheme in tables:
        scheme.unpack()
    groups = _groups(student, tables, weights, learning_rate)
    trained = [parameter for group in groups for parameter in group["params"]]
    _require_apart(student, teacher, trained)
    own = list(batches) if isinstance(batches, Iterator) else batches

    def loss(batch: Any, given: Any, wanted: Any) -> Tensor:
        mask = batch.get(_MASK) if isinstance(batch, Mapping) else None
        return distillation_loss(given, wanted, kind=kind, temperature=temperature, mask=mask)

    loop = Steps(student, teacher, call or call_with, loss, groups, total=epochs * number_of(own))
    with _prepared(student, teacher, trained):
        reporter = FitReporter(progress, None, task="tuning", in_words=lambda error: f"loss {error:.3g}")
        with in_float32(student), reporter:
            best = Best(student, trained, metric, patience)
            losses = go_over(loop, own, epochs, best, reporter)
        if best.epoch:
            for number, drop_in in enumerate(drop_ins_of(student)):
                _round(drop_in, seed + number)
    final = None if metric is None else measured(metric, student)
    return Tuning(losses, tuple(best.values), best.epoch, final, loop.done, time.perf_counter() - start)


def _groups(
    student: nn.Module, tables: list[EmbeddingScheme], weights: TunedWeights, learning_rate: float | None
) -> list[dict[str, Any]]:
    """What is trained, by its learning rate."""
    groups = [{"params": list(each.parameters()), "lr": learning_rate or each.tuning_rate} for each in tables]
    if weights == "all":
        known = {id(parameter) for each in tables for parameter in each.parameters()}
        others = [own for own in student.parameters() if own.requires_grad and id(own) not in known]
        groups.append({"params": others, "lr": learning_rate or _RATE_OF_OTHERS})
    groups = [group for group in groups if group["params"]]
    if not groups:
        raise ValueError("the schemes in the place of the tables have nothing to train; give weights='all'")
    return groups


def _require_apart(student: nn.Module, teacher: nn.Module, trained: list[nn.Parameter]) -> None:
    own = {id(parameter) for parameter in trained}
    shared = [name for name, parameter in teacher.named_parameters() if id(parameter) in own]
    if shared:
        raise ValueError(
            f"the teacher shares {shared[0]!r} with the student, so it would change while it teaches; make it by "
            "copy.deepcopy(model) before the tables are replaced"
        )
    if device_of(student) != device_of(teacher):
        raise ValueError(
            f"the student is on {device_of(student)} and the teacher on {device_of(teacher)}; move one of them"
        )


@contextmanager
def _prepared(student: nn.Module, teacher: nn.Module, trained: list[nn.Parameter]) -> Iterator[None]:
    """Only what is trained has gradients, and nothing is random; afterwards everything is as it was before."""
    asked = {parameter: parameter.requires_grad for parameter in student.parameters()}
    own = {id(parameter) for parameter in trained}
    with modes_kept(student, teacher):
        student.eval()
        teacher.eval()
        for drop_in in drop_ins_of(student):
            drop_in.train()
        for parameter in asked:
            parameter.requires_grad_(id(parameter) in own)
        try:
            yield
        finally:
            for parameter, before in asked.items():
                parameter.requires_grad_(before)
                parameter.grad = None


def _round(drop_in: DropIn, seed: int) -> None:
    """Round the weights of 8 bits, so that the vectors of all ids change little."""
    if not has_weights_to_round(drop_in.scheme):
        return
    device = device_of(drop_in.scheme)
    network, is_learned = drop_in.scheme.learned_part(torch.arange(drop_in.num_embeddings, device=device))
    ids = is_learned.nonzero().flatten()
    round_by_parts(network, ids, metric=torch.eye(drop_in.embedding_dim, device=device), seed=seed)
