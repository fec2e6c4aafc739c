import logging
import sys
import warnings

import pytest
import torch
from torch import nn

from tableless import SCHEMES, DeepHashEmbedding, distil
from tableless.embedding import EmbeddingScheme, FitProgress, PoorFitWarning, fit_progress, regression
from tableless.embedding.distillation import default_visits
from tableless.embedding.muon import Muon, _orthogonalise
from tableless.embedding.regression import default_batch, rate_for, settle_statistics

may_be_poor = pytest.mark.filterwarnings(
    "ignore::tableless.embedding.PoorFitWarning"
)  # for tests that fit noise, or too shortly


def structured_table(rows=600, dim=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, dim, generator=generator)


def test_a_trained_embedding_becomes_a_network_without_the_data():
    embedding = nn.Embedding(600, 8)
    scheme = DeepHashEmbedding.from_budget("1/1 parameters", embedding_dim=8, vocab_size=600)
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
    scheme = DeepHashEmbedding.from_budget("1/1 parameters", embedding_dim=8, vocab_size=600, **arguments)
    assert distil(structured_table(), scheme, visits=150, batch_size=200).unexplained < 0.5


def test_rows_belong_to_the_ids_that_are_given():
    ids = torch.randint(-(2**62), 2**62, (600,), generator=torch.Generator().manual_seed(1))
    table = structured_table()
    scheme = DeepHashEmbedding.from_budget("1/1 parameters", embedding_dim=8, vocab_size=600)
    distil(table, scheme, ids=ids, visits=150, batch_size=200)
    assert torch.cosine_similarity(scheme(ids), table).mean() > 0.85
    assert torch.cosine_similarity(scheme(torch.arange(600)), table).mean() < 0.3


def test_the_metric_says_which_errors_count():
    metric = torch.diag(torch.tensor([10.0] + [0.1] * 7))
    scheme = DeepHashEmbedding.from_budget("1/4 parameters", embedding_dim=8, vocab_size=600)
    table = structured_table()
    distil(table, scheme, metric=metric, visits=150, batch_size=200)
    errors = (scheme(torch.arange(600)) - table).square().mean(0)
    assert errors[0] < 0.2 * errors[1:].mean()


@may_be_poor
def test_the_weights_say_whose_errors_count():
    weights = torch.ones(600).index_fill(0, torch.arange(300), 30.0)
    scheme = DeepHashEmbedding.from_budget("1/4 parameters", embedding_dim=8, vocab_size=600)
    table = structured_table()
    distil(table, scheme, weights=weights, visits=150, batch_size=200)
    errors = (scheme(torch.arange(600)) - table).square().mean(-1)
    assert errors[:300].mean() < 0.5 * errors[300:].mean()


def easy_table(rows=300, dim=8):
    """Two directions are all there is, so a small network learns it."""
    return structured_table(rows, 2) @ structured_table(2, dim, seed=1)


def network(table, budget="1/1 parameters", **options):
    return DeepHashEmbedding.from_budget(budget, embedding_dim=table.shape[1], vocab_size=len(table), **options)


def lost(scheme, table):
    errors = scheme(torch.arange(len(table))).detach().double() - table.double()
    return float(errors.square().sum() / (table.double() - table.double().mean(0)).square().sum())


@pytest.mark.parametrize(
    ("scheme", "scale", "mean"),
    [
        ("dhe", 1e-6, 0.0),
        ("dhe", 1e3, 0.0),
        ("dhe", 1.0, 100.0),
        ("compositional", 1e-6, 0.0),
        ("head-and-tail", 1e-4, -0.01),
    ],
)
def test_the_scale_and_the_mean_of_a_table_do_not_matter(scheme, scale, mean):
    unexplained = []
    for table in (easy_table(), easy_table() * scale + mean):
        new = SCHEMES[scheme].from_budget("1/1 parameters", embedding_dim=8, vocab_size=300)
        result = distil(table, new, visits=100)
        assert result.unexplained == pytest.approx(lost(new, table), rel=1e-3)
        unexplained.append(result.unexplained)
    assert unexplained[0] < 0.02
    assert unexplained[1] == pytest.approx(unexplained[0], rel=0.5)


def test_experts_get_the_scale_and_the_mean_too():
    table = easy_table() * 1e-5 + 1
    assert distil(table, network(table, num_experts=3), visits=150).unexplained < 0.1


def test_what_is_unexplained_is_a_share_of_the_variance_around_the_mean_by_weights_and_metric():
    table, weights = structured_table() + 100, torch.linspace(0, 2, 600)
    metric = torch.diag(torch.linspace(0.1, 3, 8))
    scheme = SCHEMES["hashing-trick"](8, num_rows=100)
    with pytest.warns(PoorFitWarning):
        result = distil(table, scheme, weights=weights, metric=metric)
    mean = (weights @ table) / weights.sum()
    errors = weights @ ((scheme(torch.arange(600)).detach() - table) @ metric).square().sum(-1)
    assert result.unexplained == pytest.approx(float(errors / (weights @ ((table - mean) @ metric).square().sum(-1))))
    assert result.unexplained > 0.5


def test_a_poor_fit_warns_once_and_says_what_to_do():
    table = structured_table()
    with pytest.warns(
        PoorFitWarning, match=r"\d+% .* unexplained.* larger budget.* more visits .*had 3\).* another"
    ) as told:
        distil(table, network(table, "1/4 parameters"), visits=3, batch_size=200)
    assert len(told) == 1
    assert told[0].filename == __file__
    with pytest.warns(PoorFitWarning, match=r"larger budget for the scheme, or another scheme$"):
        distil(table, SCHEMES["low-rank"].from_budget("1/4 parameters", embedding_dim=8, vocab_size=600))


def test_a_good_fit_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert distil(easy_table(), network(easy_table()), visits=100).unexplained < 0.1


@pytest.mark.parametrize("num_experts", [1, 2])
def test_a_fit_worse_than_the_mean_row_becomes_the_mean_row(num_experts, monkeypatch):
    monkeypatch.setattr(regression, "_MOST_ATTEMPTS", 1)
    table = structured_table() + 5
    scheme = network(table, num_experts=num_experts)
    with pytest.warns(PoorFitWarning, match="every id has the mean row"):
        result = distil(table, scheme, visits=30, learning_rate=1e4)
    torch.testing.assert_close(scheme(torch.arange(600)), table.mean(0).expand(600, 8))
    assert result.unexplained == pytest.approx(1)


def test_rows_that_are_all_the_same_are_met_exactly():
    table = torch.full((50, 8), 0.1)
    scheme = network(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert distil(table, scheme).unexplained == 0
    assert torch.equal(scheme(torch.arange(50)), table)


class Doubled(EmbeddingScheme):
    """A scheme of one's own, without an output layer."""

    open_vocabulary = False

    def __init__(self, embedding_dim):
        super().__init__()
        self.embedding_dim = embedding_dim
        self.table = nn.Parameter(torch.zeros(300, embedding_dim))

    def forward(self, ids):
        return 2 * self.table[ids]

    @classmethod
    def from_budget(cls, budget, *, embedding_dim, vocab_size, seed=0):
        return cls(embedding_dim)


@may_be_poor
def test_a_scheme_without_an_output_layer_learns_the_rows_as_they_are():
    table = easy_table() + 1
    scheme = Doubled(8)
    assert distil(table, scheme, visits=300).unexplained == pytest.approx(lost(scheme, table), rel=1e-3)
    assert lost(scheme, table) < 0.5


def test_a_small_table_is_visited_400_times_and_a_huge_one_60_times():
    assert default_visits(3) == 400
    assert default_visits(3_200) == 250
    assert default_visits(10_000) == 200
    assert default_visits(30_000) == 100
    assert default_visits(300_000) == 60


@may_be_poor
def test_a_poor_fit_that_was_still_falling_begins_again_with_four_times_the_visits(monkeypatch):
    """By default only: visits that are given are the most there will be."""
    for name in ("_MOST_VISITS", "_FEWEST_VISITS"):
        monkeypatch.setattr(f"tableless.embedding.distillation.{name}", 30)
    told, table = [], easy_table()
    longer = distil(table, network(table), progress=told.append)
    assert longer.visits == longer.steps == 120
    assert [at.message for at in told if at.message] == [told[30].message]
    assert "120 visits" in told[30].message
    shorter = distil(table, network(table), visits=30)
    assert (shorter.visits, shorter.steps) == (30, 30)
    assert longer.unexplained < 0.1 < shorter.unexplained


@may_be_poor
def test_a_network_that_is_too_small_does_not_begin_again():
    table = structured_table(300)
    result = distil(table, network(table, "1/4 parameters"))
    assert result.unexplained > 0.1
    assert result.visits == 400


def test_a_fit_that_is_close_enough_ends_before_its_time(monkeypatch):
    monkeypatch.setattr(regression, "_CLOSE_ENOUGH", 0.2)
    result = distil(easy_table(), network(easy_table()))
    assert result.visits < 300
    assert result.visits == result.steps


@may_be_poor
def test_progress_says_how_far_the_fit_is_and_how_long_it_will_take():
    told, table = [], easy_table()
    distil(table, network(table), visits=20, batch_size=100, progress=told.append)
    assert all(isinstance(at, FitProgress) for at in told)
    assert [at.done for at in told] == list(range(1, 61))
    assert {at.total for at in told} == {60}
    assert told[0].error == pytest.approx(1, abs=0.1)
    assert told[30].seconds_left > 0
    assert told[-1].seconds_left == 0


@may_be_poor
def test_before_a_long_fit_the_time_and_quicker_schemes_are_named(monkeypatch, caplog):
    monkeypatch.setattr(fit_progress, "_LONG", 0)
    told, table = [], easy_table()
    distil(table, network(table), visits=10, progress=told.append)
    (message,) = [at.message for at in told if at.message]
    assert message.startswith("fitting 300 rows will take about")
    assert "low-rank" in message
    with caplog.at_level(logging.WARNING):
        distil(table, network(table), visits=10, progress=False)
        assert caplog.messages == []
        distil(table, network(table), visits=10)
    assert [text.startswith("fitting 300 rows will take about") for text in caplog.messages] == [True]


@pytest.mark.parametrize("name", fit_progress.QUICKER_SCHEMES)
@may_be_poor
def test_the_quicker_schemes_take_no_steps(name):
    table = easy_table()
    assert distil(table, SCHEMES[name].from_budget("1/2 parameters", embedding_dim=8, vocab_size=300)).steps == 0


@pytest.mark.parametrize(
    ("is_terminal", "progress", "shown"), [(True, None, True), (True, False, False), (False, None, False)]
)
@may_be_poor
def test_a_terminal_has_a_bar_unless_it_is_switched_off(is_terminal, progress, shown, monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    distil(easy_table(), network(easy_table()), visits=5, progress=progress)
    assert ("fitting" in capsys.readouterr().err) == shown


@pytest.mark.parametrize(
    ("rows", "num_experts", "expected"),
    [(1_000, 1, 2048), (16_000, 1, 2048), (38_093, 1, 4762), (38_093, 3, 6144), (10**6, 1, 8192), (10**6, 18, 125_010)],
)
def test_a_batch_is_an_eighth_of_an_experts_rows_within_bounds(rows, num_experts, expected):
    assert default_batch(rows, num_experts) == expected


@pytest.mark.parametrize(("width", "expected"), [(64, 0.06), (96, 0.06), (192, 0.03), (384, 0.015)])
def test_wide_networks_have_a_lower_rate(width, expected):
    assert rate_for(DeepHashEmbedding(8, width=width, num_hashes=512, depth=2)) == pytest.approx(expected)


@may_be_poor
def test_a_fit_that_diverges_begins_again_at_half_the_rate(monkeypatch):
    results = {}
    for most_attempts in (1, 6):
        monkeypatch.setattr(regression, "_MOST_ATTEMPTS", most_attempts)
        table = structured_table(300, 4) @ structured_table(4, 8, seed=1)
        scheme = DeepHashEmbedding(8, num_hashes=32, width=32, depth=4)
        results[most_attempts] = distil(table, scheme, learning_rate=1.0)
    assert results[1].learning_rate == 1.0
    assert results[6].learning_rate in (0.5, 0.25)
    assert results[6].unexplained < min(0.001, results[1].unexplained)


@may_be_poor
def test_the_same_seed_gives_the_same_fit():
    results = []
    for _ in range(2):
        scheme = DeepHashEmbedding.from_budget("1/2 parameters", embedding_dim=8, vocab_size=600)
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
