import math
from dataclasses import replace

import pytest
import torch

from tableless.recommender.batches import Batch, SharedNegatives
from tableless.recommender.losses import LOSSES, shared_softmax
from tableless.recommender.runs import ModelConfig, build_model
from tableless.recommender.scoring import ModelInputs
from tests.data.tiny import small_split

ROWS = {"users": torch.tensor([3, 5]), "items": torch.tensor([7, 2, 9]), "user": torch.tensor([1, 0])}
BATCH = Batch(**ROWS, item=torch.tensor([[0, 1], [2, 0]]), weight=None)
SHARED = Batch(
    **ROWS,
    item=torch.tensor([[0], [2]]),
    weight=None,
    shared=SharedNegatives(torch.tensor([1, 0]), own=torch.tensor([[0], [1]]), correction=torch.tensor([0.5, 0.0])),
)
SCORES = torch.tensor([[2.0, -1.0, 0.5], [0.0, 1.0, -3.0]])


def model_and_inputs():
    split = small_split()
    model = build_model(ModelConfig(scheme="full"), split, seed=0)
    with torch.no_grad():
        model.weight.copy_(torch.linspace(0.5, 2, 32))
        model.items.table.mul_(30)  # so that scores are far from each other
    return model, ModelInputs.of(model, split.train)


def test_the_scores_of_a_batch_are_those_of_its_rows():
    model, inputs = model_and_inputs()
    found = model.score_distinct(*inputs.of_batch(BATCH))
    torch.testing.assert_close(found, model(torch.tensor([5, 3]), torch.tensor([[7, 2], [9, 7]])))


@pytest.mark.parametrize("similarity", ["direction", "cosine", "product"])
def test_the_shared_softmax_is_that_of_each_action_among_its_own_negatives(similarity):
    model, inputs = model_and_inputs()
    found = shared_softmax(model, inputs, SHARED, temperature=0.5, similarity=similarity)
    # The user at position 0, who is row 3 and has the second action, has chosen the negative in column 1: item 7.
    total = 0.0
    for user, items, correction in [(5, [7, 2, 7], [0.0, 0.5, 0.0]), (3, [9, 2], [0.0, 0.5])]:
        vector = model.users(torch.tensor(user)) * model.weight
        others = model.items(torch.tensor(items))
        if similarity != "product":
            vector = vector / vector.norm() / 0.5
        if similarity == "cosine":
            others = others / others.norm(dim=-1, keepdim=True)
        total -= (others @ vector - torch.tensor(correction)).log_softmax(-1)[0]
    torch.testing.assert_close(found, total / 2)


def test_a_user_who_has_chosen_all_shared_items_learns_nothing_from_them():
    model, inputs = model_and_inputs()
    own = torch.tensor([[0, 0], [0, 1]])
    batch = replace(SHARED, shared=SharedNegatives(torch.tensor([1, 0]), own=own, correction=None))
    shared_softmax(model, inputs, batch, temperature=0.5, similarity="direction").backward()
    assert bool(model.users.table.grad.isfinite().all())
    assert float(model.users.table.grad[3].abs().max()) == 0
    assert float(model.users.table.grad[5].abs().max()) > 0


def test_each_loss_is_what_its_formula_says():
    def log_sigmoid(x):
        return -math.log1p(math.exp(-x))

    pairs = [(2.0, 1), (-1.0, -1), (0.5, -1), (0.0, 1), (1.0, -1), (-3.0, -1)]
    assert float(LOSSES["bce"](SCORES, None, None)) == pytest.approx(-sum(log_sigmoid(s * y) for s, y in pairs) / 6)
    chosen = [2 - math.log(math.exp(2) + math.exp(-1) + math.exp(0.5)), -math.log(1 + math.e + math.exp(-3))]
    assert float(LOSSES["softmax"](SCORES, None, None)) == pytest.approx(-sum(chosen) / 2)
    leads = [3.0, 1.5, -1.0, 3.0]
    assert float(LOSSES["bpr"](SCORES, None, None)) == pytest.approx(-sum(map(log_sigmoid, leads)) / 4)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_with_a_teacher_the_loss_is_least_where_the_scores_are_the_teacher_s(name):
    teacher = torch.tensor([[1.0, 0.2, -0.4], [-0.3, 0.7, 0.1]])
    least = LOSSES[name](teacher, teacher, None)
    for seed in range(5):
        other = teacher + torch.randn(2, 3, generator=torch.Generator().manual_seed(seed))
        assert LOSSES[name](other, teacher, None) > least


@pytest.mark.parametrize("expected", [None, SCORES.flip(0)])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_an_item_that_is_not_there_counts_nothing(name, expected):
    weight = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    raised = SCORES.clone()
    raised[0, 2] = 50.0
    losses = []
    for own in (SCORES, raised):
        own = own.clone().requires_grad_()
        loss = LOSSES[name](own, expected, weight)
        loss.backward()
        assert bool(own.grad.isfinite().all())
        assert float(own.grad[0, 2]) == 0
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1])
