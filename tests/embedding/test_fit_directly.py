"""What can be computed from the rows of a table is computed, and is the best there is."""

import pytest
import torch

from tableless import SCHEMES, distil
from tableless.embedding.tables import (
    BloomEmbedding,
    FullEmbedding,
    HashEmbedding,
    HashingTrick,
    HybridHashing,
    LowRankEmbedding,
)
from tableless.embedding.tables.frequent_rows import FrequentRows
from tableless.embedding.tables.shared_rows import SharedRows

# Most tables here are noise, which is a poor fit by intent.
pytestmark = pytest.mark.filterwarnings("ignore::tableless.embedding.PoorFitWarning")

ROWS, DIM = 1000, 16
CLOSED = torch.arange(ROWS)
OPEN = torch.randint(-(2**63), 2**63 - 1, (ROWS,), generator=torch.Generator().manual_seed(7))


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def low_rank_table(rows=ROWS, seed=0):
    """Four directions that matter, a little of the others, and a mean that is not zero."""
    return normal(rows, 4, seed=seed) @ normal(4, DIM, seed=seed + 1) + 0.1 * normal(rows, DIM, seed=seed + 2) + 1


WEIGHTS = normal(ROWS, seed=5).square() + 0.1
METRICS = {
    "all alike": torch.eye(DIM),
    "stretched": normal(DIM, DIM, seed=3) * torch.logspace(1, -1, DIM),
    "wide": normal(DIM, 40, seed=3),
    "narrow": normal(DIM, 6, seed=3),
    "of less than full rank": normal(DIM, 5, seed=3) @ normal(5, DIM, seed=4),
}


def counted(errors, metric=None, weights=WEIGHTS):
    errors = errors.detach()
    errors = errors.double() if metric is None else (errors.double() @ metric.double())
    return float((errors.square().sum(-1) * weights).sum())


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_is_nearer_to_the_table_than_its_mean_row(name):
    budget = "1/1" if SCHEMES[name].is_the_table else "1/2"
    scheme = SCHEMES[name].from_budget(budget, embedding_dim=DIM, vocab_size=ROWS)
    ids, table = OPEN if scheme.open_vocabulary else CLOSED, low_rank_table()
    for module in scheme.modules():
        if isinstance(module, FrequentRows):
            module.assign(ids[: module.num_ids])
    is_learned = name in ("dhe", "head-and-tail", "compositional")
    result = distil(table, scheme, ids=ids, visits=60 if is_learned else None)
    assert result.unexplained < 0.9  # of the mean row it is 1
    variance = counted(table - table.mean(0), weights=1)
    assert result.unexplained == pytest.approx(counted(scheme(ids) - table, weights=1) / variance)
    assert (result.steps > 0) == is_learned


def test_the_full_table_takes_over_the_rows_of_the_ids_that_are_given():
    scheme, order = FullEmbedding(DIM, vocab_size=ROWS + 5), torch.randperm(ROWS)
    before, table = scheme.table.detach().clone(), low_rank_table()
    result = distil(table, scheme, ids=order)
    assert (result.unexplained, result.steps) == (0, 0)
    assert torch.equal(scheme(order), table)
    assert torch.equal(scheme.table[ROWS:], before[ROWS:])


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("rank", [1, 3, 5, 8])
def test_low_rank_leaves_what_the_singular_values_leave(metric, rank):
    scheme, order, table = LowRankEmbedding(DIM, vocab_size=ROWS, rank=rank), torch.randperm(ROWS), low_rank_table()
    distil(table, scheme, ids=order, metric=metric, weights=WEIGHTS)
    values = torch.linalg.svdvals(WEIGHTS.double().sqrt().unsqueeze(-1) * (table.double() @ metric.double())).square()
    left = counted(scheme(order) - table, metric) / float(values.sum())
    assert left == pytest.approx(float(values[rank:].sum() / values.sum()), abs=1e-6)


def test_low_rank_ends_with_directions_that_a_step_in_the_table_moves_along_as_far_as_in_a_full_one():
    scheme = LowRankEmbedding(DIM, vocab_size=ROWS, rank=5)
    distil(low_rank_table(), scheme, metric=METRICS["stretched"], weights=WEIGHTS)
    torch.testing.assert_close(scheme.projection @ scheme.projection.mT, torch.eye(5), atol=1e-5, rtol=0)


def test_a_rank_with_room_to_spare_can_still_learn():
    """A column of zeros in both factors would have no gradient."""
    scheme = LowRankEmbedding(DIM, vocab_size=ROWS, rank=8)
    distil(low_rank_table(), scheme, metric=METRICS["narrow"])
    scheme(CLOSED).square().sum().backward()
    (scheme(CLOSED) - normal(ROWS, DIM)).square().sum().backward()
    assert (scheme.table.grad.abs().sum(0) > 0).all()


def test_the_hashing_trick_takes_the_weighted_mean_of_those_who_share():
    scheme, table = HashingTrick(DIM, num_rows=300), low_rank_table()
    before = scheme.table.detach().clone()
    distil(table, scheme, ids=OPEN, metric=METRICS["stretched"], weights=WEIGHTS)
    buckets = scheme.hashes(OPEN)[:, 0]
    for row in range(300):
        own = buckets == row
        expected = (table[own] * WEIGHTS[own, None]).sum(0) / WEIGHTS[own].sum() if own.any() else before[row]
        torch.testing.assert_close(scheme.table[row], expected)


def dense_least_squares(places, num_rows, table, weights, factors=None):
    """The error of the best table, by another way: a matrix with a column for each row."""
    factors = torch.ones(places.shape) if factors is None else factors
    sums = torch.zeros(len(places), num_rows, dtype=torch.float64).scatter_add_(-1, places, factors.double())
    root = weights.double().sqrt().unsqueeze(-1)
    found = torch.linalg.lstsq(root * sums, root * table.double(), driver="gelsd").solution
    return counted(sums @ found - table, weights=weights)


@pytest.mark.parametrize(("num_rows", "num_hashes"), [(150, 2), (1500, 2), (300, 40), (900, 6), (90, 3)])
def test_bloom_is_as_near_as_least_squares_can_be(num_rows, num_hashes):
    """Few rows and many, few look-ups and many: each has its own way to the same answer."""
    scheme, table = BloomEmbedding(DIM, num_rows=num_rows, num_hashes=num_hashes), low_rank_table(2000)
    ids, weights = torch.arange(2000) * 10**12, normal(2000, seed=5).square() + 0.1
    distil(table, scheme, ids=ids, metric=METRICS["stretched"], weights=weights)
    best = dense_least_squares(scheme.hashes(ids), num_rows, table, weights)
    left = counted(scheme(ids) - table, weights=weights)
    assert left == pytest.approx(best, abs=2e-5 * counted(table, weights=weights))


@pytest.mark.parametrize("num_rows", [150, 1500])
def test_shared_rows_with_factors_are_as_near_as_least_squares_can_be(num_rows):
    table, random = low_rank_table(2000), torch.Generator().manual_seed(1)
    places, factors = torch.randint(num_rows, (2000, 3), generator=random), normal(2000, 3)
    factors += 0.5 * factors.sign()  # with some near zero it would take more steps
    weights = normal(2000, seed=5).square() + 0.1
    rows = SharedRows(places, num_rows).solve(table, weights=weights, factors=factors, start=torch.zeros(num_rows, DIM))
    left = counted((rows[places] * factors.unsqueeze(-1)).sum(-2) - table, weights=weights)
    best = dense_least_squares(places, num_rows, table, weights, factors)
    assert left == pytest.approx(best, abs=2e-5 * counted(table, weights=weights))


def test_rows_that_nobody_uses_stay_as_they_were():
    for num_rows in (900, 4000):  # solved directly, and by steps
        scheme = BloomEmbedding(DIM, num_rows=num_rows)
        before = scheme.table.detach().clone()
        distil(low_rank_table()[:200], scheme, ids=OPEN[:200])
        is_used = torch.zeros(num_rows, dtype=torch.bool).index_fill(0, scheme.hashes(OPEN[:200]).flatten(), True)
        assert torch.equal(scheme.table[~is_used], before[~is_used])
        assert not torch.isclose(scheme.table[is_used], before[is_used]).all(-1).any()


def test_hybrid_keeps_the_frequent_rows_and_solves_for_the_others():
    scheme, table = HybridHashing(DIM, num_frequent=100, num_rows=300), low_rank_table()
    scheme.frequent.assign(OPEN[:100])
    distil(table, scheme, ids=OPEN, weights=WEIGHTS)
    assert torch.equal(scheme(OPEN[:100]), table[:100])
    best = dense_least_squares(scheme.hashes(OPEN[100:]), 300, table[100:], WEIGHTS[100:])
    left = counted(scheme(OPEN[100:]) - table[100:], weights=WEIGHTS[100:])
    assert left == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize("weights", ["dedicated", "hashed"])
@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_hash_embedding_is_nearer_than_bloom_with_as_many_rows(weights, metric):
    table = low_rank_table()
    scheme = HashEmbedding(DIM, vocab_size=ROWS, num_rows=300, weights=weights)
    bloom = BloomEmbedding(DIM, num_rows=300)
    ids = OPEN if scheme.open_vocabulary else CLOSED
    for one in (scheme, bloom):
        distil(table, one, ids=ids, metric=metric, weights=WEIGHTS)
    limit = 0.6 if weights == "dedicated" else 0.8
    assert counted(scheme(ids) - table, metric) < limit * counted(bloom(ids) - table, metric)
    importance = scheme.importance[scheme._places(ids)].detach()
    assert importance.square().mean() == pytest.approx(1, rel=1e-4)
    assert importance.abs().max() < 100
