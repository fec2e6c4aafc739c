"""Data at the edges of what numbers can do: training goes on, and what it leaves is finite."""

import numpy as np
import pytest
import torch

from tableless import SCHEMES, DeepHashEmbedding, EmbeddingBag, SideFeatures, distil, to_ids
from tableless.data.config import DataConfig
from tableless.data.splits import split_leave_one_out
from tableless.embedding import distillation
from tableless.recommender.evaluation import measure_scorer
from tableless.recommender.runs import ModelConfig, train_and_measure
from tableless.recommender.scoring import popularity_scores
from tableless.recommender.streaming import train_on_stream
from tableless.recommender.training import TrainConfig
from tests.data.tiny import interactions_of
from tests.recommender.test_streaming import model

WORLDS = {
    "everyone has had everything": interactions_of(*[[0, 1, 2] * 3] * 5, num_items=3),
    "one user": interactions_of([0, 1, 2, 3], num_items=4),
    "fewer users than dimensions": interactions_of(*[list(range(9))] * 2, [1, 2, 3], num_items=12),
    "an item a million times": interactions_of(*[[0] * 250_000 + [1, 2, 3]] * 4, [4, 5, 6], num_items=7),
}


@pytest.fixture(autouse=True)
def _few_visits(monkeypatch):
    monkeypatch.setattr(distillation, "_MOST_VISITS", 5)


@pytest.mark.parametrize("backbone", ["gmf", "mlp"])
@pytest.mark.parametrize("scheme", ["dhe", "full"])
@pytest.mark.parametrize("world", WORLDS)
def test_training_survives(world, scheme, backbone):
    options = {"normalization": "batch", "depth": 1, "num_hashes": 8} if scheme == "dhe" else {}
    config = ModelConfig(scheme=scheme, budget="3000", embedding_dim=8, backbone=backbone, options=options)
    training = TrainConfig(epochs=2, batch_size=65_536)
    trained, results = train_and_measure(DataConfig(data="x"), config, training, split_leave_one_out(WORLDS[world]))
    assert all(torch.isfinite(value).all() for value in trained.state_dict().values())
    assert 0 <= results["auc"] <= 1


@pytest.mark.parametrize("normalization", ["batch", "none"])
def test_batches_of_one_train(normalization):
    options = {"normalization": normalization, "depth": 1, "num_hashes": 8, "num_experts": 2}
    config = ModelConfig(scheme="dhe", budget="3000", embedding_dim=8, options=options)
    split = split_leave_one_out(interactions_of([0, 1, 2, 3], [3, 2, 1], [1, 2, 0], num_items=4))
    training = TrainConfig(epochs=2, batch_size=1, recipe="paper")
    trained, results = train_and_measure(DataConfig(data="x"), config, training, split)
    assert results["epochs"] == 2
    assert all(torch.isfinite(value).all() for value in trained.state_dict().values())


def test_where_nothing_is_untouched_no_ranking_is_better_than_another():
    split = split_leave_one_out(WORLDS["everyone has had everything"])
    assert measure_scorer(popularity_scores(split.train), split).auc == 0.5


@pytest.mark.parametrize("name", SCHEMES)
def test_a_million_times_the_same_id_has_finite_gradients(name):
    scheme = SCHEMES[name].from_budget("1/1", embedding_dim=4, vocab_size=500).train()
    vectors = scheme(torch.full((1_000_000,), 7))
    vectors.square().mean().backward()
    assert torch.equal(vectors[0], vectors[-1])
    assert all(torch.isfinite(parameter.grad).all() for parameter in scheme.parameters() if parameter.grad is not None)


def test_a_million_times_the_same_string_is_one_id():
    assert to_ids(["x"] * 1_000_000).unique().tolist() == to_ids(["x"]).tolist()


def test_a_stream_of_a_single_item_trains():
    batches = [(np.arange(50), np.zeros(50, np.int64))] * 3
    report = train_on_stream(model(), batches, TrainConfig())
    assert np.isfinite(report.loss)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_features_that_are_no_finite_float32_are_refused_wherever_they_come_in(value):
    side = SideFeatures(2)
    scheme = DeepHashEmbedding(4, width=4, num_hashes=4, depth=1, side_features=side)
    for features in ([[1.0, 2.0], [value, 0.0]], np.array([[1.0, 2.0], [value, 0.0]])):
        with pytest.raises(ValueError, match="row 1 of the features has a NaN or an infinite value"):
            scheme.side_features.add([1, 2], features)
    assert len(side.ids) == 0


def test_a_table_of_zeros_can_be_learned():
    scheme = DeepHashEmbedding(4, width=8, depth=1, num_hashes=8)
    result = distil(torch.zeros(50, 4), scheme)
    assert np.isfinite(result.unexplained)
    assert scheme(torch.arange(50)).abs().max() < 0.1


def test_an_empty_bag_among_a_million_ids_is_zero():
    bag = EmbeddingBag(DeepHashEmbedding(4, width=4, num_hashes=4, depth=1))
    vectors = bag(torch.full((1_000_000,), 3), torch.tensor([0, 0, 1_000_000]))
    assert vectors[0].tolist() == vectors[2].tolist() == [0, 0, 0, 0]
    assert torch.isfinite(vectors).all()
