"""A network that is trained from nothing by small steps says so, once."""

import copy
import warnings

import numpy as np
import pytest
import torch

from tableless import GMF, SCHEMES, DeepHashEmbedding, TrainedFromNothing, distil
from tableless.embedding.distillation import PoorFitWarning
from tableless.recommender.streaming import train_on_stream
from tableless.recommender.training import TrainConfig
from tableless.recommender.training_loop import train_model
from tests.data.tiny import small_split

BATCHES = 260


def network(seed=0):
    return DeepHashEmbedding(4, width=16, depth=1, num_hashes=64, normalization="none", seed=seed)


def train(scheme, *, rate=1e-3, every=1, batches=BATCHES):
    """The warnings of a plain loop, with an optimizer step for every so many batches."""
    optimizer = torch.optim.Adam(scheme.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(0)
    scheme.train()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in range(batches):
            (scheme(torch.arange(32)) - torch.randn(32, 4, generator=generator)).square().mean().backward()
            if batch % every == 0:
                optimizer.step()
                optimizer.zero_grad()
    return [warning.message for warning in caught]


@pytest.mark.parametrize("every", [1, 3])
def test_a_network_trained_from_nothing_at_a_usual_rate_warns_once(every):
    scheme = network()
    (warning,) = train(scheme, every=every)
    assert type(warning) is TrainedFromNothing
    for advice in ("tableless.replace_embeddings(", "tableless.train", "streams", "tableless.TrainedFromNothing"):
        assert advice in str(warning)
    assert train(scheme) == []


def test_two_networks_of_a_model_are_mentioned_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for scheme in (network(0), network(1)):
            optimizer = torch.optim.Adam(scheme.parameters(), lr=1e-3)
            for _ in range(BATCHES):
                (scheme(torch.arange(32)) - torch.randn(32, 4)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
    assert [warning.category for warning in caught] == [TrainedFromNothing]


def test_the_tail_of_head_and_tail_warns_too_unless_told_otherwise():
    scheme = SCHEMES["head-and-tail"].from_budget("1/1 parameters", embedding_dim=4, vocab_size=1_000, head_share=0.001)
    expected = copy.deepcopy(scheme)
    expected.expect_training_from_nothing()
    assert len(train(scheme)) == 1
    assert train(expected) == []


def test_a_fitted_or_loaded_network_does_not_warn():
    fitted, loaded = network(), network()
    with pytest.warns(PoorFitWarning):
        distil(torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), fitted, visits=2)
    assert train(fitted) == []
    loaded.load_state_dict(network(1).state_dict())
    assert train(copy.deepcopy(loaded)) == []
    assert train(loaded) == []


@pytest.mark.parametrize("seed", [0, 1])
def test_rates_that_are_known_not_to_work_warn_and_those_that_work_do_not(seed):
    """Adam's. The rule must tell a factor of three, whatever a single step is like: several seeds are tried."""
    assert len(train(network(seed), rate=3e-4)) == 1
    assert len(train(network(seed), rate=1e-3)) == 1
    assert train(network(seed), rate=3e-3) == []
    assert train(network(seed), rate=0.03) == []


def test_short_trainings_do_not_warn():
    assert train(network(), batches=150) == []


def test_a_network_that_is_not_trained_does_not_warn():
    assert train(network(), every=10**6) == [], "only its first batch has a step"
    frozen = network().requires_grad_(False).train()
    for _ in range(BATCHES):
        frozen(torch.arange(3))


def test_the_training_of_the_library_does_not_warn():
    """Warnings are errors in tests."""
    split = small_split()
    config = TrainConfig(epochs=1, batch_size=split.train.num_actions // BATCHES)
    train_model(GMF(users=network(0), items=network(1)), split, config)
    stream = ((np.array([batch, batch + 1]), np.array([batch % 7, 9])) for batch in range(BATCHES))
    train_on_stream(GMF(users=network(0), items=network(1)), stream, config)
