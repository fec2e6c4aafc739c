import pytest
import torch
from torch import nn

from tableless import SCHEMES, DeepHashEmbedding, distil
from tableless.embedding import regression
from tableless.embedding.regression import Muon, _orthogonalise, default_batch, rate_for, settle_statistics


def structured_table(rows=600, dim=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, dim, generator=generator)


def test_a_trained_embedding_becomes_a_network_without_the_data():
    embedding = nn.Embedding(600, 8)
    scheme = DeepHashEmbedding.from_budget("1/1", embedding_dim=8, vocab_size=600)
    result = distil(embedding, scheme, visits=150, batch_size=200)
    vectors = scheme(torch.arange(600)).detach()
    rows = embedding.weight.detach()
    error = (vectors - rows).square().mean() / rows.square().mean()
    assert result.unexplained == pytest.approx(float(error), rel=0.02)
    assert result.unexplained < 0.25
    assert result.mean_cosine > 0.85
    assert result.steps == 150 * 3


@pytest.mark.parametrize("arguments", [{"num_experts": 3}, {"normalization": "batch"}])
def test_experts_and_batch_norm_are_fitted_too(arguments):
    scheme = DeepHashEmbedding.from_budget("1/1", embedding_dim=8, vocab_size=600, **arguments)
    assert distil(structured_table(), scheme, visits=150, batch_size=200).unexplained < 0.5


def test_rows_belong_to_the_ids_that_are_given():
    ids = torch.randint(-(2**62), 2**62, (600,), generator=torch.Generator().manual_seed(1))
    table = structured_table()
    scheme = DeepHashEmbedding.from_budget("1/1", embedding_dim=8, vocab_size=600)
    distil(table, scheme, ids=ids, visits=150, batch_size=200)
    assert torch.cosine_similarity(scheme(ids), table).mean() > 0.85
    assert torch.cosine_similarity(scheme(torch.arange(600)), table).mean() < 0.3


def test_the_metric_says_which_errors_count():
    metric = torch.diag(torch.tensor([10.0] + [0.1] * 7))
    scheme = DeepHashEmbedding.from_budget("1/4", embedding_dim=8, vocab_size=600)
    table = structured_table()
    distil(table, scheme, metric=metric, visits=150, batch_size=200)
    errors = (scheme(torch.arange(600)) - table).square().mean(0)
    assert errors[0] < 0.2 * errors[1:].mean()


def test_the_weights_say_whose_errors_count():
    weights = torch.ones(600).index_fill(0, torch.arange(300), 30.0)
    scheme = DeepHashEmbedding.from_budget("1/4", embedding_dim=8, vocab_size=600)
    table = structured_table()
    distil(table, scheme, weights=weights, visits=150, batch_size=200)
    errors = (scheme(torch.arange(600)) - table).square().mean(-1)
    assert errors[:300].mean() < 0.5 * errors[300:].mean()


def test_a_small_table_is_visited_400_times_and_a_huge_one_60_times():
    scheme = SCHEMES["compositional"](1, vocab_size=300_000, num_remainders=300_000, hidden=1)
    assert distil(torch.ones(3, 1), scheme).steps == 400
    assert distil(torch.ones(300_000, 1), scheme, batch_size=300_000).steps == 60


@pytest.mark.parametrize(
    ("rows", "num_experts", "expected"),
    [(1_000, 1, 2048), (16_000, 1, 2048), (38_093, 1, 4762), (38_093, 3, 6144), (10**6, 1, 8192), (10**6, 18, 125_010)],
)
def test_a_batch_is_an_eighth_of_an_experts_rows_within_bounds(rows, num_experts, expected):
    assert default_batch(rows, num_experts) == expected


@pytest.mark.parametrize(("width", "expected"), [(110, 0.03), (192, 0.03), (384, 0.015)])
def test_wide_networks_have_a_lower_rate(width, expected):
    assert rate_for(DeepHashEmbedding(8, width=width, num_hashes=512, depth=2)) == pytest.approx(expected)


@pytest.mark.parametrize(("most_attempts", "comes_down"), [(1, False), (6, True)])
def test_a_fit_that_diverges_begins_again_at_half_the_rate(most_attempts, comes_down, monkeypatch):
    monkeypatch.setattr(regression, "_MOST_ATTEMPTS", most_attempts)
    table = structured_table(300, 4) @ structured_table(4, 8, seed=1)
    scheme = DeepHashEmbedding(8, num_hashes=32, width=32, depth=4)
    assert (distil(table, scheme, learning_rate=4.0).unexplained < 0.01) == comes_down


def test_the_same_seed_gives_the_same_fit():
    results = []
    for _ in range(2):
        scheme = DeepHashEmbedding.from_budget("1/2", embedding_dim=8, vocab_size=600)
        distil(structured_table(), scheme, visits=3, batch_size=200)
        results.append(scheme(torch.arange(600)))
    assert torch.equal(*results)


def test_a_table_that_does_not_fit_is_refused():
    scheme = DeepHashEmbedding(4, width=8)
    with pytest.raises(ValueError, match=r"shape \(600, 8\); expected \[600, 4\]"):
        distil(structured_table(), scheme)


def test_settled_statistics_are_those_of_all_ids():
    scheme = DeepHashEmbedding(8, width=16, depth=1, num_hashes=32)
    ids = torch.arange(1000)
    settle_statistics(scheme, ids, batch_size=100)
    layer = scheme.decoder.hidden[0]
    expected = layer.linear(scheme.encoder(ids)).mean(0)
    torch.testing.assert_close(layer.norm.running_mean, expected, atol=1e-5, rtol=1e-4)
    assert layer.norm.momentum == 0.1


@pytest.mark.parametrize("shape", [(20, 50), (50, 20), (3, 20, 30)])
def test_orthogonalised_matrices_have_singular_values_near_one(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(_orthogonalise(matrix))
    assert values.min() > 0.5
    assert values.max() < 1.4


def test_muon_lowers_a_loss_and_leaves_parameters_without_gradient_alone():
    layer, idle = nn.Linear(6, 6), nn.Parameter(torch.ones(3, 3))
    optimizer = Muon([*layer.parameters(), idle], lr=0.05)
    x = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (layer(x) - x.flip(-1)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 * losses[0]
    assert torch.equal(idle, torch.ones(3, 3))
