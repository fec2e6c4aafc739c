import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tableless.recommender import batches
from tableless.recommender.batches import Batches
from tests.data.tiny import interactions_of, small_split


def flatten(source, epoch):
    """Every example of an epoch as (user row, chosen item, negatives)."""
    examples = []
    for batch in source.epoch(epoch):
        users, items = batch.users[batch.user], batch.items[batch.item]
        examples += [(int(user), int(own[0]), tuple(own[1:].tolist())) for user, own in zip(users, items, strict=True)]
    return examples


def make(interactions, **changes):
    settings = {"batch_size": 64, "num_negatives": 4, "num_items": interactions.num_items, "seed": 0}
    return Batches(interactions, **(settings | changes))


def test_an_epoch_has_every_action_once_and_no_negative_the_user_chose():
    train = small_split().train
    examples = flatten(make(train), 0)
    rows = train.user_rows()
    assert sorted((user, item) for user, item, _ in examples) == sorted(
        zip(rows.tolist(), train.items.tolist(), strict=True)
    )
    chosen = set(zip(rows.tolist(), train.items.tolist(), strict=True))
    assert not any((user, negative) in chosen for user, _, negatives in examples for negative in negatives)


def test_order_and_negatives_change_with_the_epoch_and_the_seed_and_nothing_else():
    train = small_split().train
    first = flatten(make(train), 0)
    assert flatten(make(train), 0) == first
    assert flatten(make(train), 1) != first
    assert flatten(make(train, seed=1), 0) != first
    used = make(train)
    flatten(used, 0)
    assert flatten(used, 1) == flatten(make(train), 1), "an epoch does not depend on the epochs before it"


def test_distinct_ids_are_distinct():
    for batch in make(small_split().train).epoch(0):
        assert len(batch.users.unique()) == len(batch.users)
        assert len(batch.items.unique()) == len(batch.items)


def test_ranks_share_the_batches_of_a_single_process():
    train = small_split().train
    alone = flatten(make(train), 3)
    shares = [flatten(make(train, rank=rank, world_size=2), 3) for rank in range(2)]
    assert sorted(shares[0] + shares[1]) == sorted(alone)


def test_negatives_are_uniform_over_what_the_user_did_not_choose():
    train = interactions_of([1, 3, 3, 5] * 50, num_items=8)
    counts = np.zeros(8)
    for epoch in range(20):
        for _, _, negatives in flatten(make(train), epoch):
            np.add.at(counts, list(negatives), 1)
    assert (counts[[1, 3, 5]] == 0).all()
    others = counts[[0, 2, 4, 6, 7]]
    assert abs(others / others.sum() - 0.2).max() < 0.01


def test_a_user_who_chose_everything_has_weight_zero_where_a_negative_would_be():
    train = interactions_of([0, 1, 2, 1], [2], num_items=3)
    (batch,) = make(train).epoch(0)
    users = batch.users[batch.user]
    assert batch.weight is not None
    assert torch.equal(batch.weight[:, 0], torch.ones(5))
    assert (batch.weight[users == 0, 1:] == 0).all()
    assert (batch.weight[users == 1] == 1).all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=12), min_size=1, max_size=5), st.integers(0, 2**31))
def test_no_negative_is_ever_a_positive(picks, seed):
    train = interactions_of(*picks, num_items=10)
    for batch in make(train, seed=seed).epoch(0):
        users, items = batch.users[batch.user], batch.items[batch.item]
        weight = torch.ones_like(items) if batch.weight is None else batch.weight
        for user, own, counted in zip(users.tolist(), items.tolist(), weight.tolist(), strict=True):
            assert all(n not in picks[user] for n, w in zip(own[1:], counted[1:], strict=True) if w)


@pytest.mark.parametrize("limit", [0, 10**6])
def test_a_random_order_visits_everything_once_whether_shuffled_or_strided(limit, monkeypatch):
    monkeypatch.setattr(batches, "_MOST_SHUFFLED", limit)
    orders = []
    for seed in range(3):
        order = batches._Order(1001, np.random.default_rng(seed))
        parts = [order.between(start, start + 100) for start in range(0, 1001, 100)]
        orders.append(np.concatenate(parts).tolist())
        assert sorted(orders[-1]) == list(range(1001))
        assert 300 < parts[0].mean() < 700, "a batch is spread over all the data"
    assert orders[0] != orders[1]


def test_shared_negatives_are_distinct_and_say_whose_own_they_are():
    train = small_split().train
    chosen = set(zip(train.user_rows().tolist(), train.items.tolist(), strict=True))
    examples = []
    for batch in make(train, num_negatives=30, is_shared=True).epoch(0):
        users, drawn = batch.users[batch.user].tolist(), batch.items[batch.shared.place].tolist()
        assert len(set(drawn)) == len(drawn) <= 30
        own = set(zip(*batch.shared.own.tolist(), strict=True))
        expected = {
            (row, at)
            for row, user in enumerate(batch.users.tolist())
            for at, item in enumerate(drawn)
            if (user, item) in chosen
        }
        assert own == expected
        examples += zip(users, batch.items[batch.item[:, 0]].tolist(), strict=True)
        assert batch.weight is None
        assert batch.shared.correction is None
    assert sorted(examples) == sorted(chosen), "every action once"


def test_batches_of_whole_users_have_all_actions_of_their_users_and_every_user_once():
    train = small_split().train
    counts = np.diff(train.starts)
    seen, orders = [], []
    for epoch in range(2):
        batches_of_epoch = list(make(train, batch_size=200, whole_users=True).epoch(epoch))
        assert len(batches_of_epoch) == len(make(train, batch_size=200))
        for batch in batches_of_epoch:
            users = batch.users[batch.user].numpy()
            assert np.array_equal(np.bincount(users, minlength=len(counts))[batch.users], counts[batch.users])
            seen += zip(users.tolist(), batch.items[batch.item[:, 0]].tolist(), strict=True)
        orders.append([batch.users.tolist() for batch in batches_of_epoch])
    chosen = sorted(zip(train.user_rows().tolist(), train.items.tolist(), strict=True))
    assert sorted(seen) == sorted(chosen * 2)
    assert orders[0] != orders[1]


def test_ranks_share_the_negatives_too():
    train = small_split().train
    settings = {"num_negatives": 30, "is_shared": True}
    alone = [batch.items[batch.shared.place].tolist() for batch in make(train, **settings).epoch(3)]
    for rank in range(2):
        share = make(train, rank=rank, world_size=2, **settings).epoch(3)
        assert [batch.items[batch.shared.place].tolist() for batch in share] == alone


def test_a_batch_shares_all_items_where_there_are_no_more_than_are_asked_for():
    train = small_split().train
    batch = next(make(train, num_negatives=500, is_shared=True, by_popularity=0.5).epoch(0))
    assert sorted(batch.items[batch.shared.place].tolist()) == list(range(train.num_items))
    assert batch.shared.correction is None, "every item is there, so none more often"


def test_draws_by_popularity_are_corrected_by_how_often_an_item_is_there():
    train = small_split().train
    settings = {"num_negatives": 20, "is_shared": True, "by_popularity": 1.0, "batch_size": 16}
    source, times, batches_seen, correction = make(train, **settings), np.zeros(train.num_items), 0, {}
    for epoch in range(12):
        for batch in source.epoch(epoch):
            drawn = batch.items[batch.shared.place].tolist()
            times[drawn] += 1
            batches_seen += 1
            correction |= dict(zip(drawn, batch.shared.correction.tolist(), strict=True))
    rows = np.array(sorted(correction))
    share = times[rows] / batches_seen
    expected = np.exp([correction[row] for row in rows]) * 20 / train.num_items
    error = np.sqrt(expected * (1 - expected) / batches_seen)
    assert np.abs(share - expected).max() < 5 * error.max()
    assert share.max() > 3 * share.min(), "popular items are there more often"
