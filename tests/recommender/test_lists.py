import numpy as np
import pytest
import torch

from tableless.recommender import losses
from tableless.recommender.distributed import Processes
from tableless.recommender.losses import ListBatch, ListLoss, Lists, ListVectors
from tableless.recommender.runs import ModelConfig, build_model
from tests.data.tiny import small_split

BATCH = ListBatch(torch.tensor([3, 5, 41]), torch.tensor([7, 2, 9, 30]))


def model_of(scheme, **options):
    return build_model(ModelConfig(scheme=scheme, **options), small_split(), seed=0)


def rows_of(batches):
    return np.concatenate([batch.users.numpy() for batch in batches])


@pytest.mark.parametrize("users_of_batch", [7, 64, 1024])
def test_every_user_comes_equally_often(users_of_batch, monkeypatch):
    monkeypatch.setattr(losses, "_USERS", users_of_batch)
    split = small_split()
    own = Lists(split, seed=3, processes=Processes())
    batches = list(own.epoch(0))
    assert len(batches) == len(own) == max(40, -(-split.num_known_users // users_of_batch))
    counts = np.bincount(rows_of(batches), minlength=split.num_known_users)
    assert counts.min() >= 1
    assert counts.max() - counts.min() <= 1


def test_lists_depend_on_seed_and_epoch_alone_and_have_known_items():
    split = small_split()
    first, again, other, later = (
        [batch.items.tolist() for batch in Lists(split, seed=seed, processes=Processes()).epoch(number)]
        for seed, number in ((1, 0), (1, 0), (2, 0), (1, 1))
    )
    assert first == again
    assert first != other
    assert first != later
    assert max(map(max, first)) < split.num_known_items


def test_frequent_items_are_drawn_more_often(monkeypatch):
    monkeypatch.setattr(losses, "_ITEMS", 10)
    split = small_split()
    drawn = np.concatenate([batch.items for batch in Lists(split, seed=0, processes=Processes()).epoch(0)])
    chosen = np.bincount(split.train.items, minlength=split.num_known_items)[: split.num_known_items]
    often = np.bincount(drawn, minlength=split.num_known_items)
    assert often[np.argsort(chosen)[-20:]].mean() > 1.3 * often[np.argsort(chosen)[:20]].mean()


def test_processes_share_the_users_of_a_batch_and_have_the_same_items():
    split = small_split()
    whole = next(Lists(split, seed=0, processes=Processes()).epoch(0))
    shares = [next(Lists(split, seed=0, processes=Processes(rank, 2)).epoch(0)) for rank in (0, 1)]
    assert sorted(rows_of(shares).tolist()) == sorted(whole.users.tolist())
    assert all(torch.equal(share.items, whole.items) for share in shares)


@pytest.mark.parametrize("scheme", ["dhe", "full"])
def test_products_of_the_vectors_are_the_scores_of_the_model(scheme):
    split, model = small_split(), model_of(scheme, budget="1/2 parameters")
    left, right = ListVectors(model.eval(), split)(BATCH)
    users, items = split.train.user_ids[BATCH.users], split.train.item_ids[BATCH.items]
    if scheme == "full":
        users, items = BATCH.users.numpy(), BATCH.items.numpy()
    with torch.no_grad():
        model.bias.fill_(3)
    expected = model(torch.from_numpy(users), torch.from_numpy(items).expand(3, -1))
    torch.testing.assert_close(left @ right.mT, expected - 3)


@pytest.mark.parametrize("at_a_time", [2, 128])
def test_loss_and_gradients_are_those_of_the_formula_for_any_part_of_the_users(at_a_time, monkeypatch):
    monkeypatch.setattr(losses, "_AT_A_TIME", at_a_time)
    split, model = small_split(), model_of("full").double()
    with torch.no_grad():
        model.items.table[2] *= 40  # a user's scores are far apart, and not around zero
    expected = (torch.randn(3, 5).double(), torch.randn(4, 5).double())
    found = ListLoss(model, split)(BATCH, expected)
    own, wanted = (
        (scores / scores.std(-1, keepdim=True, correction=0)).log_softmax(-1)
        for scores in (model.score_all(*ListVectors(model, split)(BATCH)), expected[0] @ expected[1].mT)
    )
    formula = torch.nn.functional.kl_div(own, wanted, log_target=True, reduction="batchmean")
    assert found.item() == pytest.approx(formula.item(), rel=1e-9)
    learned = [model.users.table, model.items.table, model.weight]
    ours = torch.autograd.grad(found, [*learned, model.bias])
    for mine, theirs in zip(ours, torch.autograd.grad(formula, learned), strict=False):
        torch.testing.assert_close(mine, theirs)
        assert float(theirs.abs().max()) > 1e-4
    assert float(ours[-1]) == 0, "what changes no order learns nothing"


def test_the_loss_is_least_for_the_order_of_the_teacher_whatever_the_length_of_a_user():
    split, model = small_split(), model_of("full")
    loss = ListLoss(model, split)
    with torch.no_grad():
        model.users.table.mul_(torch.linspace(0.1, 3, len(model.users.table)).unsqueeze(-1))
    with torch.no_grad():
        users, items = ListVectors(model, split)(BATCH)
        assert float(loss(BATCH, (users * 7, items))) == pytest.approx(0, abs=1e-6)
        assert float(loss(BATCH, (-users, items))) > 0.5
        assert bool(loss(BATCH, (torch.zeros_like(users), items)).isfinite())
