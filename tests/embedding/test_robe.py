"""ROBE: chunks out of one array, where they begin, and the best numbers for those who share them."""

import math

import pytest
import torch

from tableless import HashFamily, distil, to_ids
from tableless.embedding.hashing import derive_seed
from tableless.embedding.tables import RobeEmbedding

ROWS, DIM = 300, 10
IDS = torch.randint(-(2**63), 2**63 - 1, (ROWS,), generator=torch.Generator().manual_seed(7))

pytestmark = pytest.mark.filterwarnings("ignore:.*unexplained")


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("chunk_size", [1, 4, 10, 32])
def test_a_chunk_is_a_piece_of_the_array_that_begins_at_a_hash_and_wraps_around(chunk_size, signed):
    scheme = RobeEmbedding(DIM, size=37, chunk_size=chunk_size, signed=signed, seed=3)
    num_chunks = math.ceil(DIM / chunk_size)
    starts = HashFamily(num_chunks, 37, 3, mixed=True)(IDS)
    signs = HashFamily(num_chunks, 2, derive_seed(3, "sign"), mixed=True)(IDS)
    ring = scheme.numbers.detach().repeat(3).tolist()
    for row in range(0, ROWS, 30):
        expected = []
        for chunk in range(num_chunks):
            piece = ring[starts[row, chunk] : starts[row, chunk] + chunk_size]
            expected += [-number if signed and signs[row, chunk] else number for number in piece]
        assert scheme(IDS[row]).tolist() == expected[:DIM]


def test_ids_share_pieces_of_chunks_and_hardly_ever_a_vector():
    scheme, ids = RobeEmbedding(8, size=2000, chunk_size=4), torch.arange(5000)
    assert len(scheme(ids).unique(dim=0)) > 4990
    used = torch.bincount(scheme.places(ids).flatten(), minlength=2000)
    assert used.min() > 0
    assert 10 < used.float().mean() < 30


@pytest.mark.parametrize("kind", ["in a row", "multiples of 2^32", "strings"])
@pytest.mark.parametrize("seed", range(3))
def test_chunks_begin_as_chance_would(kind, seed):
    ids = {
        "in a row": torch.arange(2000) + 10**12,
        "multiples of 2^32": torch.arange(2000) << 32,
        "strings": to_ids([f"user_{number}" for number in range(2000)]),
    }[kind]
    starts = RobeEmbedding(DIM, size=1000, chunk_size=5, seed=seed).starts(ids)
    for own in starts.unbind(-1):
        assert 835 < len(own.unique()) < 895  # 1 - e^-2 of 1000 is 865


def best_error(scheme, rows, metric, weights):
    """By another way: a dense matrix with a column for each number of the array."""
    places, unit = scheme.places(IDS), torch.zeros(ROWS, DIM, scheme.size, dtype=torch.float64)
    factors = scheme._factors(IDS).double() if scheme.signed else torch.ones(ROWS, DIM, dtype=torch.float64)
    unit.scatter_(-1, places.unsqueeze(-1), factors.unsqueeze(-1))
    root = weights.double().sqrt().view(-1, 1, 1)
    sums = (root * (metric.double().mT @ unit)).flatten(0, 1)
    wanted = (root.squeeze(-1) * (rows.double() @ metric.double())).flatten().unsqueeze(-1)
    found = torch.linalg.lstsq(sums, wanted, driver="gelsd").solution
    return float((sums @ found - wanted).square().sum())


METRICS = {
    "all alike": torch.eye(DIM),
    "stretched": torch.diag(torch.logspace(0.5, -0.5, DIM)),
    "mixed": normal(DIM, DIM, seed=3),
}


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_it_is_as_near_as_least_squares_can_be(metric, signed):
    rows, weights = normal(ROWS, DIM) + 1, normal(ROWS, seed=5).square() + 0.1
    scheme = RobeEmbedding(DIM, size=400, chunk_size=4, signed=signed)
    distil(rows, scheme, ids=IDS, metric=metric, weights=weights)
    errors = (scheme(IDS).detach() - rows).double() @ metric.double()
    left = float((errors.square().sum(-1) * weights).sum())
    all_of_it = float(((rows.double() @ metric.double()).square().sum(-1) * weights).sum())
    assert left == pytest.approx(best_error(scheme, rows, metric, weights), abs=1e-4 * all_of_it)


def test_where_all_dimensions_count_the_same_each_number_is_the_mean_of_its_sharers():
    rows, weights = normal(ROWS, DIM) + 1, normal(ROWS, seed=5).square() + 0.1
    scheme = RobeEmbedding(DIM, size=5000, chunk_size=4)
    before = scheme.numbers.detach().clone()
    distil(rows, scheme, ids=IDS, weights=weights)
    places, heavy = scheme.places(IDS).flatten(), weights.repeat_interleave(DIM)
    for place in range(0, 5000, 97):
        own = places == place
        expected = (rows.flatten()[own] * heavy[own]).sum() / heavy[own].sum() if own.any() else before[place]
        torch.testing.assert_close(scheme.numbers[place], expected, atol=2e-5, rtol=1e-5)


def test_enough_numbers_keep_every_row():
    rows = normal(ROWS, DIM)
    scheme = RobeEmbedding(DIM, size=10**6, chunk_size=5)
    assert distil(rows, scheme, ids=IDS).unexplained < 0.02


def test_the_array_holds_at_least_one_vector():
    assert RobeEmbedding.from_budget(DIM, embedding_dim=DIM, vocab_size=50).size == DIM
    with pytest.raises(ValueError, match="a budget of 9 parameters is too small; the smallest possible here is 10"):
        RobeEmbedding.from_budget(DIM - 1, embedding_dim=DIM, vocab_size=50)
    with pytest.raises(ValueError, match="chunk_size is 0"):
        RobeEmbedding(DIM, size=50, chunk_size=0)
