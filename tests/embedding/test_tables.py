import numpy as np
import pytest
import torch

from tableless import SCHEMES, embedding_for
from tableless.embedding.ids import _binary_search, find
from tableless.embedding.tables import CompositionalEmbedding, HashEmbedding, HybridHashing
from tableless.embedding.tables.shared_rows import sum_of_rows


def test_the_hashing_trick_gives_colliding_ids_one_vector_and_bloom_hardly_ever():
    vocab = 2_000
    trick, bloom = (
        SCHEMES[name].from_budget("1/4", embedding_dim=4, vocab_size=vocab)(torch.arange(vocab)).unique(dim=0)
        for name in ("hashing-trick", "bloom")
    )
    assert len(trick) <= vocab // 4
    assert len(bloom) > 0.98 * vocab


@pytest.mark.parametrize("num_rows", [3, 64, 65, 1000])  # of four look-ups, a product up to 64
def test_the_sum_of_rows_and_its_gradient_are_those_of_adding_them_up(num_rows):
    random = torch.Generator().manual_seed(num_rows)
    table = torch.randn(num_rows, 5, generator=random, requires_grad=True)
    rows = torch.randint(num_rows, (2, 7, 4), generator=random)
    rows[0, 0] = rows[0, 0, 0]  # the same row four times
    weights = torch.randn(2, 7, 5, generator=random)
    added_up = torch.stack([table[rows[..., number]] for number in range(4)]).sum(0)
    expected = torch.autograd.grad((added_up * weights).sum(), table)[0]
    summed = sum_of_rows(table, rows)
    torch.testing.assert_close(summed, added_up)
    torch.testing.assert_close(torch.autograd.grad((summed * weights).sum(), table)[0], expected)


@pytest.mark.parametrize("name", ["compositional", "hash-embedding", "low-rank", "full", "dhe"])
def test_schemes_without_collisions_tell_all_ids_apart(name):
    budget = "1/1" if name == "full" else "1/4"
    scheme = SCHEMES[name].from_budget(budget, embedding_dim=32, vocab_size=20_000).eval()
    if name == "hash-embedding":  # two ids with the same two rows differ once their weights have been trained
        scheme.importance.data.normal_(generator=torch.Generator().manual_seed(0))
    assert len(scheme(torch.arange(20_000)).unique(dim=0)) == 20_000


def test_hybrid_gives_the_most_frequent_tenth_rows_of_their_own():
    frequencies = torch.arange(1000)  # the highest ids are the most frequent
    scheme = HybridHashing.from_budget("1/2", embedding_dim=4, vocab_size=1000, frequencies=frequencies)
    assert scheme.frequent.ids.tolist() == list(range(900, 1000))
    vectors = scheme(torch.arange(1000))
    assert torch.equal(vectors[900:], scheme.frequent.table)
    again = HybridHashing(**scheme.config)
    again.load_state_dict(scheme.state_dict())
    assert torch.equal(again(torch.arange(1000)), vectors)


def test_hybrid_gives_its_rows_to_the_ids_with_the_highest_counts():
    ids, counts = np.array([50, -7, 10**15, 8]), np.array([3, 1, 9, 3])
    ids.setflags(write=False)  # as those of a mapped file
    scheme = HybridHashing(4, num_frequent=2, num_rows=5)
    scheme.assign_frequent(ids, counts)
    assert scheme.frequent.ids.tolist() == [50, 10**15]  # of equal counts the first


def test_hybrid_takes_low_ids_for_frequent_where_nobody_says():
    scheme = HybridHashing.from_budget("1/2", embedding_dim=4, vocab_size=1000)
    assert torch.equal(scheme(torch.arange(100)), scheme.frequent.table)


def test_hybrid_refuses_frequencies_and_ids_that_do_not_fit():
    with pytest.raises(ValueError, match="one count per id"):
        HybridHashing.from_budget("1/2", embedding_dim=4, vocab_size=1000, frequencies=torch.ones(5))
    with pytest.raises(ValueError, match="1 distinct ids were given for 3 rows"):
        HybridHashing(4, num_frequent=3, num_rows=5).frequent.assign(torch.tensor([1, 1]))


def test_hash_embedding_with_hashed_weights_is_open_to_new_ids():
    scheme = HashEmbedding.from_budget("1/2", embedding_dim=8, vocab_size=100, weights="hashed")
    assert scheme.open_vocabulary
    assert scheme(torch.tensor([10**15, -4])).shape == (2, 8)
    with pytest.raises(ValueError, match="'dedicated' or 'hashed'"):
        HashEmbedding(8, vocab_size=10, num_rows=5, weights="other")


def test_compositional_sends_the_row_of_the_remainder_through_the_network_of_the_quotient():
    scheme = CompositionalEmbedding(4, vocab_size=1000, num_remainders=300, hidden=8)
    assert scheme.num_quotients == 4
    for value in (0, 299, 300, 999):
        row, path = scheme.table[value % 300], value // 300
        inner = torch.relu(row @ scheme.up[path] + scheme.up_bias[path, 0])
        expected = inner @ scheme.down[path] + scheme.down_bias[path, 0]
        torch.testing.assert_close(scheme(torch.tensor(value)), expected)


def test_compositional_rows_start_as_small_as_those_of_other_tables():
    scheme = CompositionalEmbedding.from_budget("1/4", embedding_dim=32, vocab_size=10_000)
    assert 0.009 < scheme.table.std() < 0.011
    assert 0.007 < scheme(torch.arange(10_000)).std() < 0.013


def test_compositional_shrinks_its_networks_only_when_64_nodes_do_not_fit():
    large = CompositionalEmbedding.from_budget("1/4", embedding_dim=32, vocab_size=100_000)
    small = CompositionalEmbedding.from_budget("1/4", embedding_dim=32, vocab_size=3_706)
    assert (large.hidden, small.hidden) == (64, 16)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 1000])
def test_the_exportable_search_finds_what_searchsorted_finds(size):
    listed = torch.unique(torch.randint(-(2**62), 2**62, (size,), generator=torch.Generator().manual_seed(size)))
    ids = torch.cat([listed, listed + 1, listed - 1, torch.tensor([-(2**63), 2**63 - 1])])
    assert torch.equal(_binary_search(listed, ids), torch.searchsorted(listed, ids))
    position, found = find(ids, listed)
    assert found.tolist() == [value in set(listed.tolist()) for value in ids.tolist()]
    assert torch.equal(listed[position[found]], ids[found])


def test_the_full_table_is_taken_where_it_fits_and_nobody_asks_about_new_ids():
    fits = embedding_for("64MB", embedding_dim=8, vocab_size=1000, open_vocabulary=False)
    assert type(fits) is SCHEMES["full"]
    assert type(embedding_for("1/4", embedding_dim=32, vocab_size=1000, open_vocabulary=False)) is SCHEMES["dhe"]
    assert embedding_for(20_000, embedding_dim=8, vocab_size=1000).open_vocabulary


def test_networks_are_computed_and_the_full_table_alone_is_the_table():
    assert {name for name, scheme in SCHEMES.items() if scheme.is_computed} == {"dhe", "head-and-tail"}
    assert {name for name, scheme in SCHEMES.items() if scheme.is_the_table} == {"full"}
