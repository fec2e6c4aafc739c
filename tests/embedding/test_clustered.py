"""Clustered compositional embedding: ids that are alike share rows, and what a cluster lacks comes from hashed rows."""

import pytest
import torch

from tableless import HashFamily, distil
from tableless.embedding.hashing import derive_seed
from tableless.embedding.rounding import unpack_codes
from tableless.embedding.tables import ClusteredCompositionalEmbedding

ROWS, DIM, CLUSTERS = 900, 8, 20
IDS = torch.randperm(ROWS, generator=torch.Generator().manual_seed(2))

pytestmark = pytest.mark.filterwarnings("ignore:.*unexplained")


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def clustered_table(noise, seed=0):
    """Two halves of columns; in each, every row is near one of 20 centres, chosen for each half alone."""
    random = torch.Generator().manual_seed(seed)
    members = torch.randint(CLUSTERS, (ROWS, 2), generator=random)
    halves = [normal(CLUSTERS, DIM // 2, seed=seed + half + 1)[members[:, half]] for half in range(2)]
    return torch.cat(halves, -1) + noise * normal(ROWS, DIM, seed=seed + 7) + 3, members


def pointers_of(scheme):
    return unpack_codes(scheme.pointers, scheme.num_parts, scheme._bits)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_pointers_find_the_clusters_of_each_part(seed):
    rows, members = clustered_table(0.02, seed)
    scheme = ClusteredCompositionalEmbedding(DIM, vocab_size=ROWS, num_rows=3 * CLUSTERS, num_parts=2, seed=seed)
    distil(rows, scheme, ids=IDS)
    pointers = pointers_of(scheme)[IDS]
    for part in range(2):
        pairs = torch.stack([pointers[:, part], members[:, part]], -1).unique(dim=0)
        # 60 rows for 20 clusters: a row never stands for two of them.
        assert len(pairs) == len(pairs[:, 0].unique())


def test_ids_of_one_cluster_share_a_row_and_the_helper_tells_them_apart():
    rows, _ = clustered_table(0.5)
    scheme = ClusteredCompositionalEmbedding(DIM, vocab_size=ROWS, num_rows=CLUSTERS, num_parts=2)
    distil(rows, scheme, ids=IDS)
    left = (scheme(IDS) - rows).square().sum()
    places = pointers_of(scheme)[IDS].repeat_interleave(DIM // 2, -1)
    residual = rows - scheme.table.detach().gather(0, places)
    with torch.no_grad():
        scheme.helper.zero_()
    means = torch.stack([residual.mean(0)])
    assert left < 0.98 * (residual - means).square().sum()


def test_its_rows_are_the_best_for_its_pointers_and_its_pointers_nearly_the_best_for_its_rows():
    rows, _ = clustered_table(0.5)
    weights = normal(ROWS, seed=5).square() + 0.1
    scheme = ClusteredCompositionalEmbedding(DIM, vocab_size=ROWS, num_rows=30, num_parts=2)
    distil(rows, scheme, ids=IDS, weights=weights)
    pointers, hashes = pointers_of(scheme)[IDS], scheme.helper_hash(IDS)
    root = weights.double().sqrt().unsqueeze(-1)
    for part in range(2):
        own = slice(part * DIM // 2, (part + 1) * DIM // 2)
        one = torch.nn.functional.one_hot
        sums = torch.cat([one(pointers[:, part], 30), one(hashes[:, part], 30)], -1).double()
        best = torch.linalg.lstsq(root * sums, root * rows[:, own].double(), driver="gelsd").solution
        least = (root * (sums @ best - rows[:, own])).square().sum()
        left = (root * (scheme(IDS)[:, own] - rows[:, own])).square().sum()
        assert left < 1.001 * least
        rest = rows[:, own] - scheme.helper[hashes[:, part]][:, own]
        nearest = torch.cdist(rest.double(), scheme.table[:, own].double()).argmin(-1)
        assert (nearest == pointers[:, part]).double().mean() > 0.9


def test_clusters_are_nearer_than_hashes():
    rows, _ = clustered_table(0.5)
    scheme = ClusteredCompositionalEmbedding(DIM, vocab_size=ROWS, num_rows=30, num_parts=4)
    result = distil(rows, scheme, ids=IDS)
    assert result.steps == 0
    assert result.unexplained < 0.35


def test_before_a_fit_pointers_are_hashes():
    scheme = ClusteredCompositionalEmbedding(DIM, vocab_size=ROWS, num_rows=33, num_parts=3, seed=5)
    hashes = HashFamily(3, 33, derive_seed(5, "cluster"), mixed=True)
    assert torch.equal(pointers_of(scheme), hashes(torch.arange(ROWS)))


def test_a_vector_is_a_cluster_s_row_and_a_hashed_row_part_by_part():
    scheme = ClusteredCompositionalEmbedding(7, vocab_size=50, num_rows=9, num_parts=3)  # 3, 2 and 2 columns
    pointers, hashes = pointers_of(scheme), scheme.helper_hash(torch.arange(50))
    for value in (0, 17, 49):
        parts = [
            scheme.table[pointers[value, part], columns] + scheme.helper[hashes[value, part], columns]
            for part, columns in enumerate([slice(0, 3), slice(3, 5), slice(5, 7)])
        ]
        assert torch.equal(scheme(torch.tensor(value)), torch.cat(parts))


@pytest.mark.parametrize(("num_rows", "bits"), [(2, 1), (3, 2), (256, 8), (257, 9), (1000, 10)])
def test_pointers_are_counted_in_as_few_bits_as_they_need(num_rows, bits):
    scheme = ClusteredCompositionalEmbedding(DIM, vocab_size=ROWS, num_rows=num_rows, num_parts=4)
    parts = scheme.bytes_by_part()
    assert parts["codes"] == ROWS * -(-4 * bits // 8)
    assert parts["weights"] == 2 * num_rows * DIM * 4
    assert parts["hash functions"] == 4 * 4 * 8


@pytest.mark.parametrize("seed", range(3))
def test_helper_rows_are_used_as_chance_would(seed):
    scheme = ClusteredCompositionalEmbedding(DIM, vocab_size=10, num_rows=1000, seed=seed)
    rows = scheme.helper_hash(torch.arange(2000))
    for own in rows.unbind(-1):
        assert 840 < len(own.unique()) < 890  # 1 - e^-2 of 1000 is 865
    assert (rows[:, 0] == rows[:, 1]).double().mean() < 0.01


def test_an_id_without_a_row_gets_nearly_the_mean_row():
    rows, _ = clustered_table(1.0)
    scheme = ClusteredCompositionalEmbedding(DIM, vocab_size=ROWS + 5, num_rows=200)
    distil(rows, scheme)
    new = scheme(torch.arange(ROWS, ROWS + 5)).detach()
    assert ((new - rows.mean(0)).norm(dim=-1) < 0.6 * (rows - rows.mean(0)).norm(dim=-1).mean()).all()


@pytest.mark.parametrize("num_rows", [40, 70])
def test_a_table_with_no_more_rows_than_clusters_is_kept(num_rows):
    rows, _ = clustered_table(1.0)
    scheme = ClusteredCompositionalEmbedding(DIM, vocab_size=40, num_rows=num_rows)
    assert distil(rows[:40], scheme).unexplained < 1e-6


def test_too_few_rows_are_refused():
    with pytest.raises(ValueError, match="num_rows is 1; at least 2 are needed"):
        ClusteredCompositionalEmbedding(DIM, vocab_size=5, num_rows=1)
