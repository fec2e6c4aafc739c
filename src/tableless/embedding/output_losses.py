"""How far the answers of one model are from those of another, whatever form a library gives its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from ..hints import require_choice
from .model_calls import answers_of
from .regression import ROUNDING

AnswerKind = Literal["auto", "vectors", "softmax", "sigmoid", "probabilities"]
_LEAST_PROBABILITY = 1e-6  # a float32 can tell it from 0 on both sides, and its logarithm is finite


def distillation_loss(
    student_output: Any,
    teacher_output: Any,
    *,
    kind: AnswerKind = "auto",
    temperature: float = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    """How far the answers of a student are from those of its teacher: 0 if they are the same.

    For your own training loop; `tableless.tune` is a whole one. An output may be a tensor, or tensors in tuples, lists,
    dictionaries and dataclasses, such as the outputs of transformers. All answers that the teacher gives count the
    same. What is no tensor of floats (caches, ids), and what is called `loss`, is no answer.

    Args:
        student_output: What the model gives that learns, with its gradients.
        teacher_output: What the model gives that it should answer as, for the same inputs. It gets no gradients.
        kind: What the numbers are. `"vectors"`: squared errors, as a share of the variance of the teacher's answers in
            the batch. `"softmax"`: the last axis holds the logits of classes. `"sigmoid"`: each number is a logit by
            itself. `"probabilities"`: each number is a probability by itself. Of these three it is the divergence of
            the probabilities. `"auto"`: `"softmax"` for what is called `logits` in the output and has two or more
            classes, and `"vectors"` for all else, which suits any kind of number.
        temperature: For `softmax` and `sigmoid`, logits are divided by it. Above 1 unlikely classes count more.
        mask: Which answers count, where inputs are padded: a number or bool for each, as `attention_mask` [batch,
            length]. It is used for answers that begin with these axes.

    Returns:
        A number to call `backward()` of, or to add to your loss.

    Raises:
        ValueError: The two outputs do not have the same answers, or there is none.

    Example:
        ```python
        import torch
        from tableless import distillation_loss

        student, teacher = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
        inputs = torch.randn(8, 4)
        with torch.no_grad():
            expected = teacher(inputs)
        loss = distillation_loss(student(inputs), expected, kind="softmax")
        loss.backward()
        ```
    """
    require_choice("kind", kind, get_args(AnswerKind))
    if temperature <= 0:
        raise ValueError(f"the temperature is {temperature}; it must be above 0")
    own, wanted = dict(answers_of(student_output)), dict(answers_of(teacher_output))
    _require_same(own, wanted)
    losses = []
    for name, expected in wanted.items():
        expected, given = _counted(expected.detach(), own[name], mask)
        losses.append(_LOSSES[_kind_of(name, expected, kind)](given.float(), expected.float(), temperature))
    return torch.stack(losses).mean()


def _require_same(own: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    if not wanted:
        raise ValueError(
            "the teacher's output has no tensor of floats to learn from; give the tensors themselves, or a tuple or a "
            "dictionary of them"
        )
    if own.keys() != wanted.keys():
        different = ", ".join(repr(name) for name in sorted(own.keys() ^ wanted.keys()))
        raise ValueError(
            f"the student and the teacher do not have the same answers; only one of them has {different}. Give both "
            "the same inputs and options"
        )
    for name, expected in wanted.items():
        if own[name].shape != expected.shape:
            raise ValueError(
                f"the student's answer {name!r} has shape {tuple(own[name].shape)}, and the teacher's "
                f"{tuple(expected.shape)}; give both the same inputs"
            )


def _counted(expected: Tensor, given: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Both answers, without what is masked."""
    if mask is None or expected.shape[: mask.ndim] != mask.shape:
        return expected, given
    if not mask.any():
        raise ValueError("the mask leaves no answer to learn from; leave such batches out")
    return expected[mask.bool()], given[mask.bool()]


def _kind_of(name: str, answer: Tensor, kind: AnswerKind) -> AnswerKind:
    if kind != "auto":
        return kind
    is_named_so = name.rpartition(".")[2].endswith("logits")
    return "softmax" if is_named_so and answer.ndim > 1 and answer.shape[-1] > 1 else "vectors"


def _of_vectors(given: Tensor, expected: Tensor, temperature: float) -> Tensor:
    mean = expected.flatten(0, -2).mean(0) if expected.ndim > 1 else expected.mean()
    squares, variance = expected.square().mean(), (expected - mean).square().mean()
    # Answers that are all the same have no variance but that of rounding. Their errors are a share of their squares.
    scale = torch.where(variance > ROUNDING * squares, variance, squares)
    return (given - expected).square().mean() / torch.where(scale > 0, scale, 1.0)


def _of_softmax(given: Tensor, expected: Tensor, temperature: float) -> Tensor:
    own, wanted = F.log_softmax(given / temperature, -1), F.log_softmax(expected / temperature, -1)
    divergence = F.kl_div(own, wanted, reduction="none", log_target=True).sum(-1).mean()
    return divergence * temperature**2  # so that gradients are as large at any temperature


def _of_sigmoid(given: Tensor, expected: Tensor, temperature: float) -> Tensor:
    both = [torch.stack([logits, -logits], -1) / temperature for logits in (given, expected)]
    own, wanted = (F.logsigmoid(logits) for logits in both)
    return (wanted.exp() * (wanted - own)).sum(-1).mean() * temperature**2


def _of_probabilities(given: Tensor, expected: Tensor, temperature: float) -> Tensor:
    if not ((expected >= 0) & (expected <= 1)).all():
        raise ValueError(
            "the teacher's answers are not all between 0 and 1, so they are no probabilities; give "
            "kind='sigmoid' for logits, or kind='vectors' for any numbers"
        )
    least, most = _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY
    own, wanted = given.clamp(least, most), expected.clamp(least, most)
    return (wanted * (wanted / own).log() + (1 - wanted) * ((1 - wanted) / (1 - own)).log()).mean()


_LOSSES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "vectors": _of_vectors,
    "softmax": _of_softmax,
    "sigmoid": _of_sigmoid,
    "probabilities": _of_probabilities,
}
