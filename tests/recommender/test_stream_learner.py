import numpy as np
import pytest
import torch

from tableless.embedding.budget import BudgetTooSmall
from tableless.kernels import stream_loops as loops
from tableless.recommender.stream_learner import StreamConfig, StreamLearner
from tableless.recommender.stream_samples import PastActions, RecentItems
from tableless.recommender.streaming import learn_stream

HALF_LIFE = 500


def actions(count=12_000, seed=0, *, drift=0):
    """Users and items of two tastes: a user chooses items of the own taste. Popularity alone says nothing of it.

    With `drift`, the items are others after so many actions.
    """
    random = np.random.default_rng(seed)
    user = random.integers(0, 300, count)
    item = 2 * random.zipf(1.6, count) % 60 + user % 2
    era = np.arange(count) // drift if drift else np.zeros(count, np.int64)
    return user * 7_919 - 2**40, (item + 100 * era) * 104_729 + 2**50


def batches(users, items, size=100):
    for start in range(0, len(users), size):
        yield users[start : start + size], items[start : start + size]


def learner(budget="120KB", **config):
    return StreamLearner(budget, StreamConfig(**{"embedding_dim": 8, "half_life": HALF_LIFE, **config}))


def test_it_learns_what_popularity_does_not_say():
    report = learn_stream(learner(), batches(*actions()))
    assert report.num_actions == 12_000
    assert report.recent_auc > 0.85
    popular = learn_stream(learner(user_rate=0.0, item_rate=0.0, bias_rate=0.0, network_rate=0.0), batches(*actions()))
    assert report.recent_auc > popular.recent_auc + 0.05
    assert report.popular_auc > popular.popular_auc + 0.1


def test_from_the_second_batch_on_it_is_at_least_as_good_as_popularity():
    users, items = actions(2_000)
    reports = []
    learn_stream(learner(), batches(users, items), on_batch=reports.append)
    assert reports[4].auc > 0.7


def test_what_it_answers_is_what_the_stored_model_answers():
    users, items = actions(6_000)
    own = learner()
    learn_stream(own, batches(users, items))
    model = own.model().eval()
    some = users[:200], np.stack([items[:200], items[200:400], np.arange(200)], axis=1)
    with torch.no_grad():
        stored = model(*map(torch.from_numpy, some)).numpy()
    np.testing.assert_allclose(own.predict(*some).scores, stored, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("budget", ["40KB", "120KB", "1MB", "60000"])
def test_the_model_keeps_to_the_budget(budget):
    own = learner(budget)
    users, items = actions(4_000)
    users[:] = np.arange(len(users)) * 31 - 50  # far more users than rows
    items[::2] = np.arange(len(items) // 2) * 17
    learn_stream(own, batches(users, items))
    allowed = {"40KB": 40_000, "120KB": 120_000, "1MB": 1_000_000, "60000": 240_000}[budget]
    assert own.model().embedding_bytes <= allowed
    assert own.model().embedding_bytes > 0.6 * allowed or budget == "1MB"


def test_a_budget_too_small_says_what_is_enough():
    with pytest.raises(BudgetTooSmall, match="a budget of 5000 bytes is too small") as error:
        learner("5000B")
    learner(f"{error.value.smallest}B")


def test_its_memory_does_not_grow():
    own = learner("40KB")

    def size():
        sides = (own.users, own.items)
        arrays = [value for side in sides for value in vars(side).values() if isinstance(value, np.ndarray)]
        return sum(array.nbytes for array in arrays)

    sizes = []
    for era in range(6):
        ids = np.arange(10_000) + 10_000 * era
        learn_stream(own, batches(ids, ids * 3 + 1, 500))
        sizes.append(size())
    assert sizes[4] == sizes[5]
    assert own.users.evictions > 10_000


def test_rows_go_to_ids_of_the_moment():
    own = learner("40KB")
    users, items = actions(12_000, drift=6_000)
    learn_stream(own, batches(users, items))
    recent, counts = np.unique(items[-1000:], return_counts=True)
    assert (own.items.look_up(recent[counts > 20]).slots >= 0).all()


def test_a_new_row_starts_from_the_network_and_an_evicted_one_is_handed_back():
    own = learner(user_rate=0.0, network_rate=0.01).users
    ids = np.arange(40) * 977
    random = np.random.default_rng(0)
    fresh = own.look_up(ids)
    computed = own.network(torch.from_numpy(ids)).detach().numpy()
    np.testing.assert_allclose(fresh.vectors, computed, atol=1e-6)
    own.lost_ids, own.lost_rows = ids, random.normal(0, 0.3, (40, 8)).astype(np.float32)
    own.lost_rows[:, -1] = 1
    nothing = np.zeros(0, np.int64)

    def error():
        return float(np.square(own.network(torch.from_numpy(ids)).detach().numpy() - own.lost_rows).sum(-1).mean())

    before = error()
    for _ in range(200):
        own.teach(nothing, np.zeros((0, 8), np.float32), nothing, random)
    assert error() < before / 2


def test_an_id_does_not_lose_its_row_to_another_of_the_same_batch():
    """Their slots are in use: whatever is learned of them in this batch must have a place to go to."""
    uses = np.array([5, 1, 2, 3], np.float32)
    slots, evicted = np.array([1, -1, -1, -1]), np.empty(4, np.int64)
    acting = np.array([False, True, True, True])
    counts = np.array([1, 4, 6, 1], np.float32)
    lost = loops.admit_rows(acting, counts, np.zeros(4, np.int64), uses, 4, slots, evicted)
    assert slots.tolist() == [1, 2, 3, -1]  # the last is no more frequent than anybody
    assert evicted.tolist() == [-1, 2, 3, -1]
    assert lost == 2
    assert uses.tolist() == [5, 1, 4, 6]


def test_a_step_goes_down_the_loss():
    """The compiled step against torch's gradients, for a plain rate."""
    random = np.random.default_rng(0)
    users, items = (random.normal(0, 0.5, (4, 6)).astype(np.float32) for _ in range(2))
    users[:, -1] = 1
    item, biases = np.array([[2, 0, 1, 2]]), random.normal(0, 1, 4).astype(np.float32)
    corrections = random.normal(0, 1, 4).astype(np.float32)
    tensors = [torch.tensor(array, requires_grad=True) for array in (users, items, biases)]
    scores = tensors[1][item[0, :3]] @ tensors[0][3] + tensors[2][item[0, :3]] - torch.tensor(corrections)[item[0, :3]]
    loss = -scores.log_softmax(0)[0]
    loss.backward()
    before_users, before_items, slopes = users.copy(), items.copy(), np.zeros(4, np.float32)
    squares = [np.zeros((4, 2), np.float32) for _ in range(2)]
    rates = np.array([0.1, 0.1, 0.1])
    found = loops.learn_actions(
        np.array([3]), item, corrections, users, items, biases, *squares, rates, False, slopes
    )  # the last candidate is the item itself, and does not count
    assert found == pytest.approx(loss.item(), rel=1e-5)
    np.testing.assert_allclose(slopes, tensors[2].grad, atol=1e-6)
    np.testing.assert_allclose(before_items - items, 0.1 * tensors[1].grad.numpy(), atol=1e-6)
    np.testing.assert_allclose((before_users - users)[:, :-1], 0.1 * tensors[0].grad.numpy()[:, :-1], atol=1e-6)
    assert (users[:, -1] == 1).all()


def test_the_same_seed_gives_the_same_model_and_another_one_another():
    models = []
    for seed in (0, 0, 1):
        own = learner(seed=seed)
        learn_stream(own, batches(*actions(3_000)))
        models.append(own.model().state_dict())
    assert all(torch.equal(value, models[1][name]) for name, value in models[0].items())
    assert not torch.equal(models[0]["popularity.linear"], models[2]["popularity.linear"])


def test_replay_keeps_what_is_long_ago():
    """Two eras with other items and users: after the second, the first is asked again."""

    def old_auc(replay):
        users, items = actions(16_000, drift=8_000)
        own = learner("40KB", replay=replay)
        learn_stream(own, batches(users, items))
        random = np.random.default_rng(1)
        first = np.unique(items[:8_000])
        asked = np.concatenate([items[:2_000, None], random.choice(first, (2_000, 8))], axis=1)
        scores = own.predict(users[:2_000], asked).scores
        return float((scores[:, 1:] < scores[:, :1]).mean())

    assert old_auc(0.3) > old_auc(0.0) + 0.01


def test_recent_items_are_drawn_by_how_recent_they_are():
    recent, random = RecentItems(100), np.random.default_rng(0)
    for start in range(0, 5_000, 100):
        recent.add(np.arange(start, start + 100))
    age = 4_999 - recent.draw(random, 20_000)
    assert age.min() == 0
    assert np.median(age) == pytest.approx(100, rel=0.1)


def test_past_actions_are_a_uniform_sample():
    counts = np.zeros(1_000)
    for seed in range(100):
        past, random = PastActions(100), np.random.default_rng(seed)
        for start in range(0, 1_000, 50):
            ids = np.arange(start, start + 50)
            past.add(ids, ids * 2, random)
        assert len(past) == 100
        assert (past.pairs[:, 1] == 2 * past.pairs[:, 0]).all()
        counts[past.pairs[:, 0]] += 1
    assert counts[:500].sum() == pytest.approx(5_000, rel=0.05)
    assert counts.std() < 5


def test_too_few_negatives_are_refused():
    with pytest.raises(ValueError, match="num_negatives is 1; it must be at least 2"):
        StreamConfig(num_negatives=1)


def test_an_empty_stream_is_refused():
    with pytest.raises(ValueError, match="the stream was empty"):
        learn_stream(learner(), [])
