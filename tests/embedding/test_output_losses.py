"""How far the answers of two models are apart, in every form that libraries give answers."""

import dataclasses
from collections import namedtuple

import pytest
import torch
import torch.nn.functional as F

from tableless import distillation_loss

KINDS = ["vectors", "softmax", "sigmoid", "probabilities"]


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def answers(kind, seed):
    return numbers(6, 5, seed=seed).sigmoid() if kind == "probabilities" else 3 * numbers(6, 5, seed=seed)


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    states: tuple
    loss: torch.Tensor | None = None


Pair = namedtuple("Pair", ["left", "right"])


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_zero_for_equal_answers_and_grows_with_their_distance(kind):
    teacher, other = answers(kind, 0), answers(kind, 1)
    losses = [
        float(distillation_loss(teacher + share * (other - teacher), teacher, kind=kind)) for share in (0, 0.1, 0.5, 1)
    ]
    assert losses[0] == pytest.approx(0, abs=1e-6)
    assert losses == sorted(losses)
    assert losses[1] > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_a_student_that_goes_down_its_gradient_comes_to_answer_as_the_teacher(kind):
    teacher, student = answers(kind, 0), answers(kind, 1).requires_grad_()
    give = torch.sigmoid if kind == "probabilities" else torch.clone
    optimizer = torch.optim.Adam([student], lr=0.1, betas=(0.9, 0.9))
    for _ in range(800):
        optimizer.zero_grad()
        distillation_loss(give(student), teacher, kind=kind).backward()
        optimizer.step()
    own, wanted = (F.softmax(each, -1) if kind == "softmax" else each for each in (give(student).detach(), teacher))
    torch.testing.assert_close(own, wanted, atol=0.1, rtol=0)


def test_of_vectors_it_is_a_share_of_the_variance_whatever_their_scale_and_mean():
    teacher = numbers(200, 4)
    mean = teacher.mean(0).expand_as(teacher)
    for scale, shift in ((1, 0), (1e-3, 0), (100, 7)):
        assert float(distillation_loss(scale * mean + shift, scale * teacher + shift)) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("shape", [(1, 4), (1,), (3, 1)])
def test_answers_without_variance_give_a_number(shape):
    same = torch.full(shape, 2.0)
    assert float(distillation_loss(same + 1, same)) == pytest.approx(0.25)
    assert float(distillation_loss(torch.ones(shape), torch.zeros(shape))) == pytest.approx(1)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_the_divergences_are_those_of_the_textbook(temperature):
    own, wanted = answers("softmax", 0), answers("softmax", 1)
    p, q = F.softmax(wanted / temperature, -1), F.softmax(own / temperature, -1)
    slow = (p * (p / q).log()).sum(-1).mean() * temperature**2
    torch.testing.assert_close(distillation_loss(own, wanted, kind="softmax", temperature=temperature), slow)
    p, q = (wanted / temperature).sigmoid(), (own / temperature).sigmoid()
    slow = (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()).mean()
    torch.testing.assert_close(
        distillation_loss(own, wanted, kind="sigmoid", temperature=temperature), slow * temperature**2
    )
    torch.testing.assert_close(distillation_loss(q, p, kind="probabilities"), slow)


def test_certain_answers_give_a_finite_loss_and_gradient():
    for kind, sure in (("sigmoid", 80.0), ("softmax", 200.0), ("probabilities", 1.0)):
        student = torch.tensor([[sure, 0.0], [0.0, sure]], requires_grad=True)
        loss = distillation_loss(student, student.detach().flip(-1), kind=kind)
        loss.backward()
        assert loss.isfinite()
        assert student.grad.isfinite().all()


def test_answers_are_found_in_tuples_dictionaries_and_dataclasses_and_count_the_same():
    a, b, c = (numbers(6, 3, seed=seed) for seed in range(3))
    zero = torch.zeros(6, 3)
    one, two, three = (float(distillation_loss(zero, each, kind="vectors")) for each in (a, b, c))
    forms = [
        ((zero, [zero, zero]), (a, [b, c])),
        ({"x": zero, "y": {"z": zero, "w": zero}}, {"x": a, "y": {"z": b, "w": c}}),
        (Output(zero, (zero, zero)), Output(a, (b, c))),
        (Pair(zero, {"more": (zero, zero)}), Pair(a, {"more": (b, c)})),
    ]
    for student, teacher in forms:
        loss = distillation_loss(student, teacher, kind="vectors")
        assert float(loss) == pytest.approx((one + two + three) / 3)


def test_what_is_no_answer_is_left_out():
    a, cache = numbers(6, 3), object()
    teacher = {"x": a, "loss": torch.tensor(3.0), "ids": torch.arange(6), "cache": cache, "none": None}
    student = {"x": a, "loss": torch.tensor(9.0), "ids": torch.arange(6) + 1, "cache": cache, "none": None}
    assert float(distillation_loss(student, teacher)) == 0


def test_logits_of_a_model_are_compared_by_their_probabilities_and_other_numbers_by_their_squares():
    a, b = answers("softmax", 0), answers("softmax", 1)
    for name in ("logits", "start_logits"):
        found = distillation_loss({name: a}, {name: b})
        assert float(found) == float(distillation_loss(a, b, kind="softmax")) != float(distillation_loss(a, b))
    assert float(distillation_loss({"logits": a[:, :1]}, {"logits": b[:, :1]})) == float(
        distillation_loss(a[:, :1], b[:, :1], kind="vectors")
    )


def test_padded_answers_do_not_count():
    teacher, mask = numbers(2, 3, 4), torch.tensor([[1, 1, 0], [1, 0, 0]])
    student = torch.where(mask.bool().unsqueeze(-1), teacher, 1e6)
    pooled = numbers(2, 4)
    loss = distillation_loss(
        {"tokens": student, "pooled": pooled + 0}, {"tokens": teacher, "pooled": pooled}, mask=mask
    )
    assert float(loss) == 0
    assert float(distillation_loss(student, teacher)) > 1
    with pytest.raises(ValueError, match="leaves no answer"):
        distillation_loss(student, teacher, mask=torch.zeros(2, 3))


def test_the_teacher_gets_no_gradient():
    student, teacher = (numbers(4, 3, seed=seed).requires_grad_() for seed in (0, 1))
    distillation_loss(student, teacher).backward()
    assert student.grad is not None
    assert teacher.grad is None


@pytest.mark.parametrize(
    ("student", "teacher", "options", "match"),
    [
        (torch.zeros(3), torch.zeros(4), {}, r"answer '' has shape \(3,\), and the teacher's \(4,\)"),
        ({"a": torch.zeros(3)}, {"b": torch.zeros(3)}, {}, "only one of them has 'a', 'b'"),
        (None, (), {}, "no tensor of floats"),
        (torch.zeros(3), torch.zeros(3), {"kind": "softmaxx"}, "did you mean 'softmax'"),
        (torch.zeros(3), torch.zeros(3), {"temperature": 0}, "temperature is 0; it must be above 0"),
        (torch.zeros(3), torch.full((3,), 2.0), {"kind": "probabilities"}, "no probabilities; give kind='sigmoid'"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_way_out(student, teacher, options, match):
    with pytest.raises(ValueError, match=match):
        distillation_loss(student, teacher, **options)
