import numpy as np
import pytest
import torch

from tableless.data.splits import split_leave_one_out
from tableless.recommender.evaluation import measure_scorer
from tableless.recommender.runs import ModelConfig, build_model
from tableless.recommender.scoring import model_scores, popularity_scores
from tableless.recommender.spectrum import beyond_chance, start_from_spectrum
from tableless.recommender.stage_settings import with_temperature
from tableless.recommender.training import TrainConfig
from tests.data.tiny import interactions_of, small_split


def started(split, *, seed=0, dim=8):
    model = build_model(ModelConfig(scheme="full", embedding_dim=dim), split, seed=seed)
    start_from_spectrum(model, split)
    return model


@pytest.mark.parametrize("seed", [0, 1])
def test_the_directions_are_those_of_an_exact_decomposition(seed):
    split = small_split()
    train = split.train
    matrix = np.zeros((train.num_users, train.num_items))
    np.add.at(matrix, (train.user_rows(), train.items), 1)
    counts = np.maximum(matrix.sum(0), 1)
    scaled = matrix / np.sqrt(np.maximum(matrix.sum(1, keepdims=True), 1)) / np.sqrt(counts)
    left, sigma, right = np.linalg.svd(scaled, full_matrices=False)
    exact = (left[:, :8] * sigma[:8]) @ right[:8] * np.sqrt(counts)
    model = started(split, seed=seed)
    found = (model.users.table @ model.items.table.mT).detach().double().numpy()
    cosine = (found * exact).sum() / np.linalg.norm(found) / np.linalg.norm(exact)
    assert cosine > 0.99


def test_it_ranks_far_better_than_popularity_before_any_training():
    split = small_split()
    auc = measure_scorer(model_scores(started(split), split), split, on="validation").auc
    assert auc > measure_scorer(popularity_scores(split.train), split, on="validation").auc + 0.05


def test_more_dimensions_than_ids_and_users_without_actions_have_a_start():
    split = split_leave_one_out(interactions_of([0, 1, 2, 3], [1, 2, 3], [4, 5], num_items=6))
    model = started(split, dim=16)
    for table in (model.users.table, model.items.table):
        assert bool(table.isfinite().all())
        assert bool((table.norm(dim=1) > 0).all())
    assert not torch.equal(started(split, seed=1, dim=16).users.table, model.users.table)


def in_groups(*, num_groups, seed=0, users=600, items=240, actions=12):
    """Users who choose within their own group of items; one group is no pattern at all."""
    random = np.random.default_rng(seed)
    size = items // num_groups
    chosen = [random.choice(size, actions, replace=False) + size * (user % num_groups) for user in range(users)]
    return split_leave_one_out(interactions_of(*(own.tolist() for own in chosen), num_items=items))


@pytest.mark.parametrize("seed", [0, 1])
def test_actions_by_chance_are_not_beyond_it_and_clear_groups_are(seed):
    assert beyond_chance(in_groups(num_groups=1, seed=seed), 8, seed=seed) == pytest.approx(1, abs=0.1)
    assert beyond_chance(in_groups(num_groups=12, seed=seed), 8, seed=seed) > 1.6


def test_clear_groups_have_a_lower_temperature_and_a_given_one_stays():
    config = TrainConfig(loss="softmax")
    unclear, clear = (in_groups(num_groups=number) for number in (1, 12))
    found = []
    for split in (unclear, clear):
        model = build_model(ModelConfig(scheme="full", embedding_dim=8), split, seed=0)
        found.append(with_temperature(config, model, split).temperature)
        assert with_temperature(TrainConfig(loss="softmax", temperature=0.7), model, split).temperature == 0.7
        assert with_temperature(TrainConfig(loss="bce"), model, split).temperature is None
    assert found[0] == TrainConfig().temperature_for(unclear.actions_per_id)
    assert found[1] < 0.9 * found[0]
