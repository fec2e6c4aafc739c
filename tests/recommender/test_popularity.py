import math

import numpy as np
import pytest
import torch

from tableless.embedding.deep_hash import DeepHashEmbedding
from tableless.recommender.models import GMF, build_recommender, describe_recommender
from tableless.recommender.popularity import DecayedCounts, PopularityBias

IDS = torch.tensor([-(2**63), -7, 5, 2**40 + 3, 2**63 - 1])


def test_counts_halve_with_the_half_life():
    counts = DecayedCounts(width=4096, half_life=50)
    counts.add(torch.cat([IDS.repeat(4), torch.full((30,), 5)]))  # 50 actions, then time goes on by 50
    found = counts(IDS)
    for life, half_life in enumerate(counts.half_lives):
        left = 2.0 ** (-50 / half_life)
        torch.testing.assert_close(found[:, life], torch.tensor([4.0, 4, 34, 4, 4]) * left)
    assert counts.half_lives == [5, 50, 1500, math.inf]


def test_counts_stay_right_for_ever():
    """Weights grow all the time, and are made small again before a float cannot hold them."""
    counts, slow = DecayedCounts(width=512, half_life=10), {}
    random = np.random.default_rng(0)
    for _ in range(400):
        ids = random.choice(IDS.numpy(), 7, p=[0.5, 0.2, 0.2, 0.05, 0.05])
        for own in ids.tolist():
            slow[own] = slow.get(own, 0.0) + 1
        slow = {own: count * 2.0 ** (-7 / 10) for own, count in slow.items()}
        counts.add(torch.from_numpy(ids))
    assert counts.weights[1] < 2**21
    expected = torch.tensor([slow[own] for own in IDS.tolist()])
    torch.testing.assert_close(counts(IDS)[:, 1], expected, rtol=1e-3, atol=1e-4)
    assert counts(IDS)[:, 3].sum() == 2800


def test_a_small_sketch_counts_too_many_and_never_too_few():
    counts = DecayedCounts(width=64, half_life=10**6)
    ids = torch.arange(1000) * 7919 - 5000
    often = (torch.arange(1000) % 17) + 1
    counts.add(ids.repeat_interleave(often)[torch.randperm(int(often.sum()), generator=torch.Generator())])
    found = counts(ids)[:, 3]
    assert (found >= often).all()
    assert (found > often).any()


def test_the_loop_and_torch_read_the_same_counts():
    counts = DecayedCounts(width=32, half_life=10)
    counts.add(torch.arange(100) * 31)
    ids = torch.arange(60).view(3, 20) * 17
    loop = counts(ids)
    assert loop.shape == (3, 20, 4)
    counts.double()
    torch.testing.assert_close(counts(ids).float(), loop)


def test_a_half_life_below_an_action_is_refused():
    with pytest.raises(ValueError, match="half_life is 0; it is a number of actions, and must be at least 1"):
        PopularityBias(width=8, half_life=0)


def popular_model():
    users, items = (DeepHashEmbedding(8, width=8, depth=1, num_hashes=8, seed=seed) for seed in range(2))
    model = GMF(users=users, items=items, popularity=PopularityBias(width=256, half_life=100, seed=3))
    model.popularity.counts.add(torch.tensor([7] * 30 + [8] * 20 + [9] * 3))
    torch.nn.init.normal_(model.popularity.output)
    return model.eval()


def test_a_model_that_learned_nothing_ranks_by_popularity():
    model = popular_model()
    torch.nn.init.zeros_(model.popularity.output)
    scores = model(torch.tensor([1, 2]), torch.tensor([[9, 8, 7, 10]] * 2))
    assert scores.argsort(descending=True).tolist() == [[2, 1, 0, 3]] * 2


@torch.no_grad()
def test_popularity_is_in_every_form_of_the_score():
    model, users, items = popular_model(), torch.tensor([1, 2]), torch.tensor([7, 8, 9, 10])
    expected = model(users, items.expand(2, 4))
    vectors = model.users(users) * model.weight
    by_hand = vectors @ model.items(items).T + model.popularity(items) + model.bias
    torch.testing.assert_close(expected, by_hand)
    user_parts, item_parts = (
        model.prepare_users(model.user_vectors(users)),
        model.prepare_items(model.item_vectors(items)),
    )
    torch.testing.assert_close(model.score_all(user_parts, item_parts), expected)
    as_score = model.score(model.user_vectors(users), model.item_vectors(items).expand(2, 4, -1))
    torch.testing.assert_close(as_score, expected)


@torch.no_grad()
def test_a_model_with_popularity_is_described_and_built_again():
    model = popular_model()
    description = describe_recommender(model)
    assert description["popularity"] == {"width": 256, "depth": 3, "half_life": 100, "seed": 3}
    again = build_recommender(description).eval()
    again.load_state_dict(model.state_dict())
    users, items = torch.tensor([1, 2]), torch.tensor([[7, 8, 9, 10]] * 2)
    assert torch.equal(again(users, items), model(users, items))
    sizes = model.sizes(None)
    assert sizes["bytes"] == sum(sum(parts.values()) for parts in sizes["bytes_by_part"].values())
    assert sizes["bytes_by_part"]["popularity"]["counts"] > 4 * 3 * 256 * 4
