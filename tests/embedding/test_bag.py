import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tableless import SCHEMES, DeepHashEmbedding, EmbeddingBag
from tableless.embedding.tables import FullEmbedding

VOCAB, DIM = 500, 8


def pair(mode, padding=None):
    """Our bag over a full table, and torch's with the same weights."""
    full = FullEmbedding(DIM, vocab_size=VOCAB, initial_std=1.0)
    theirs = nn.EmbeddingBag(VOCAB, DIM, mode=mode, padding_idx=padding, _weight=full.table.detach().clone())
    return EmbeddingBag(full, mode=mode, padding_id=padding), theirs


@st.composite
def bags(draw):
    lengths = draw(st.lists(st.integers(0, 6), min_size=1, max_size=8))
    ids = draw(st.lists(st.integers(0, VOCAB - 1), min_size=sum(lengths), max_size=sum(lengths)))
    starts = [sum(lengths[:index]) for index in range(len(lengths))]
    return torch.tensor(ids, dtype=torch.int64), torch.tensor(starts)


@settings(deadline=None)
@given(bags(), st.sampled_from(["sum", "mean", "max"]), st.sampled_from([None, 3]))
def test_it_agrees_with_torch_for_offsets_empty_bags_and_padding(bag, mode, padding):
    ids, offsets = bag
    ids = torch.where(ids % 5 == 0, 3, ids)  # enough padding to matter
    ours, theirs = pair(mode, padding)
    torch.testing.assert_close(ours(ids, offsets), theirs(ids, offsets), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("ids", "offsets"),
    [([7, 3, 9, 3, 8], [0, 2, 2, 5]), ([7, 3, 9, 3, 8], [0, 5]), ([3, 3, 3], [0, 1, 3]), ([], [0, 0, 0])],
)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 3])
def test_it_agrees_with_torch_where_the_offsets_say_where_the_last_bag_ends(ids, offsets, mode, padding):
    ours, theirs = pair(mode, padding)
    ours.include_last_offset = theirs.include_last_offset = True
    ids, offsets = torch.tensor(ids, dtype=torch.int64), torch.tensor(offsets)
    torch.testing.assert_close(ours(ids, offsets), theirs(ids, offsets), atol=1e-6, rtol=0)
    rows = torch.tensor([[7, 3], [9, 8]])  # have no offsets, and so no last one
    torch.testing.assert_close(ours(rows), theirs(rows), atol=1e-6, rtol=0)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_it_agrees_with_torch_for_rows_of_ids_and_their_gradients(mode):
    ids = torch.randint(0, VOCAB, (20, 7), generator=torch.Generator().manual_seed(0))
    ours, theirs = pair(mode)
    mine, reference = ours(ids), theirs(ids)
    torch.testing.assert_close(mine, reference, atol=1e-6, rtol=0)
    mine.square().sum().backward()
    reference.square().sum().backward()
    torch.testing.assert_close(ours.scheme.table.grad, theirs.weight.grad, atol=1e-5, rtol=1e-5)


def test_it_agrees_with_torch_for_weights_and_their_gradients():
    ids = torch.randint(0, VOCAB, (20, 7), generator=torch.Generator().manual_seed(0))
    weights = [torch.randn(20, 7, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(2)]
    ours, theirs = pair("sum")
    mine, reference = ours(ids, per_sample_weights=weights[0]), theirs(ids, per_sample_weights=weights[1])
    torch.testing.assert_close(mine, reference, atol=1e-6, rtol=1e-6)
    mine.square().sum().backward()
    reference.square().sum().backward()
    torch.testing.assert_close(weights[0].grad, weights[1].grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_it_pools_the_embeddings_of_any_scheme_and_not_their_codes(name, mode):
    budget = "1/1" if name == "full" else "1/2"
    scheme = SCHEMES[name].from_budget(budget, embedding_dim=DIM, vocab_size=VOCAB).eval()
    ids = torch.tensor([[1, 2, 2, 9], [4, 4, 4, 4]])
    vectors = scheme(ids)
    pooled = {"sum": vectors.sum(1), "mean": vectors.mean(1), "max": vectors.amax(1)}[mode]
    torch.testing.assert_close(EmbeddingBag(scheme, mode=mode)(ids), pooled, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_nothing_at_all_gives_zeros(shape):
    bag, _ = pair("mean")
    assert torch.equal(bag(torch.empty(shape, dtype=torch.int64)), torch.zeros(shape[0], DIM))


def test_a_closed_scheme_never_sees_the_padding():
    bag = EmbeddingBag(FullEmbedding(DIM, vocab_size=5), mode="sum", padding_id=-1)
    assert torch.equal(bag(torch.tensor([[-1, -1], [2, -1]]))[0], torch.zeros(DIM))


def test_each_distinct_id_is_computed_once():
    class Counting(nn.Module):
        embedding_dim = 1

        def forward(self, ids):
            self.seen = ids.tolist()
            return ids.float().unsqueeze(-1)

    bag = EmbeddingBag(Counting(), mode="sum")
    assert bag(torch.tensor([[5, 5, 5], [7, 5, 7]])).flatten().tolist() == [15, 19]
    assert bag.scheme.seen == [5, 7]


def test_arguments_that_do_not_fit_are_refused():
    bag, _ = pair("mean")
    with pytest.raises(ValueError, match="mode='sum', not 'mean'"):
        bag(torch.ones(1, 2, dtype=torch.int64), per_sample_weights=torch.ones(1, 2))
    with pytest.raises(ValueError, match="together with offsets"):
        bag(torch.ones(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="mode is 'median'"):
        EmbeddingBag(bag.scheme, mode="median")
    summing, _ = pair("sum")
    with pytest.raises(ValueError, match=r"shape \(2,\); that of ids is \(1, 2\)"):
        summing(torch.ones(1, 2, dtype=torch.int64), per_sample_weights=torch.ones(2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_have_the_type_of_the_scheme(mode, dtype):
    bag = EmbeddingBag(DeepHashEmbedding(8, width=16, depth=1, num_hashes=32), mode=mode, padding_id=0).to(dtype)
    weights = torch.ones(2, 3) if mode == "sum" else None
    vectors = bag(torch.tensor([[1, 2, 1], [0, 0, 0]]), per_sample_weights=weights)
    vectors.sum().backward()
    assert vectors.dtype == bag(torch.zeros(2, 3, dtype=torch.int64)).dtype == dtype


def test_a_bag_refuses_ids_that_are_no_integers():
    bag = EmbeddingBag(DeepHashEmbedding(8, width=16, depth=1, num_hashes=32))
    with pytest.raises(TypeError, match=r"ids are of type torch\.float32"):
        bag(torch.tensor([[1.7]]))
