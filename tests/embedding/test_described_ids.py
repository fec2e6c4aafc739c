import copy

import pytest
import torch

from tableless import SCHEMES, load_scheme, save_scheme
from tableless.embedding.described_ids import WithDescribedIds

NUM, COLUMNS, DIM = 300, 6, 8
IDS = torch.randint(-(2**62), 2**62, (NUM,), generator=torch.Generator().manual_seed(1))


def world():
    """Vectors that follow from features, but for a little noise."""
    draw = torch.Generator().manual_seed(0)
    features = torch.randint(0, 2, (NUM, COLUMNS), generator=draw).float()
    rows = features @ torch.randn(COLUMNS, DIM, generator=draw) + 1 + 0.05 * torch.randn(NUM, DIM, generator=draw)
    return features, rows


@pytest.fixture(params=["full", "low-rank", "coded", "dhe"])
def fitted(request):
    features, rows = world()
    inner = SCHEMES[request.param].from_budget("1/1", embedding_dim=DIM, vocab_size=NUM)
    from tableless import distil

    distil(rows, inner, ids=IDS if inner.open_vocabulary else None, visits=60, progress=False)
    scheme = WithDescribedIds(inner, num_features=COLUMNS, known_ids=None if inner.open_vocabulary else IDS).eval()
    unexplained = scheme.fit_map(IDS, features)
    return scheme, features, rows, unexplained


@torch.no_grad()
def test_described_ids_get_the_vectors_of_their_features_and_known_ids_keep_theirs(fitted):
    scheme, features, rows, unexplained = fitted
    assert unexplained < 0.2
    before = scheme(IDS)
    new = torch.tensor([17, 2**61])
    scheme.add(new, features[:2])
    assert torch.equal(scheme(IDS), before)
    assert (scheme(new) - rows[:2]).norm() < 0.5 * (rows.mean(0) - rows[:2]).norm()
    assert scheme.is_described(torch.tensor([17, 18])).tolist() == [True, False]
    scheme.add([17], features[1:2])
    torch.testing.assert_close(scheme(torch.tensor([[17]]))[0, 0], scheme(new)[1])


@torch.no_grad()
def test_an_id_that_nobody_has_described_has_the_mean_vector_or_what_the_network_says(fitted):
    scheme, _, _, _ = fitted
    unknown = torch.tensor([3, 4])
    if scheme.inner.open_vocabulary:
        assert torch.equal(scheme(unknown), scheme.inner(unknown))
    else:
        torch.testing.assert_close(scheme(unknown), scheme(IDS).mean(0).expand(2, -1), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_it_is_saved_served_and_exported_with_the_same_answers(fitted, tmp_path):
    scheme, features, _, _ = fitted
    scheme.add([17], features[:1])
    scheme.pack()
    ids = torch.cat([IDS, torch.tensor([17, 5])])
    expected = scheme(ids)
    save_scheme(scheme, tmp_path)
    assert torch.equal(load_scheme(tmp_path)(ids), expected)
    torch.testing.assert_close(scheme.served("fp32", IDS).vectors(ids), expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(scheme.exported()(ids), expected, atol=1e-5, rtol=1e-4)
    program = torch.export.export(scheme.exported().eval(), (ids,))
    torch.testing.assert_close(program.module()(ids), expected, atol=1e-5, rtol=1e-4)


def test_bytes_count_what_described_ids_take(fitted):
    scheme, features, _, _ = fitted
    before = scheme.num_bytes
    scheme.add(range(10), features[:10])
    assert scheme.num_bytes == before + 10 * (8 + COLUMNS)
    assert scheme.bytes_by_part().items() >= scheme.inner.bytes_by_part().items()


def test_weights_decide_whose_vectors_the_map_follows():
    features = torch.tensor([[1.0], [1.0]]).repeat(50, 1)
    inner = SCHEMES["full"].from_budget("1/1", embedding_dim=1, vocab_size=100)
    rows = torch.tensor([[0.0], [10.0]]).repeat(50, 1)
    inner.table.data.copy_(rows)
    scheme = WithDescribedIds(inner, num_features=1, known_ids=torch.arange(100))
    for heavy, expected in ((0, 0.0), (1, 10.0)):
        weights = torch.full((100,), 1e-6)
        weights[heavy::2] = 1.0
        scheme.fit_map(torch.arange(100), features, weights=weights)
        scheme.add([1000], [[1.0]])
        assert abs(scheme(torch.tensor([1000])).item() - expected) < 0.1


def test_noise_is_not_learned():
    """Where features say nothing, the map is held back, and a described id is near the mean."""
    draw = torch.Generator().manual_seed(0)
    inner = SCHEMES["full"].from_budget("1/1", embedding_dim=4, vocab_size=60)
    inner.table.data.copy_(torch.randn(60, 4, generator=draw))
    scheme = WithDescribedIds(inner, num_features=30, known_ids=torch.arange(60))
    features = torch.randint(0, 2, (60, 30), generator=draw).float()
    assert scheme.fit_map(torch.arange(60), features) < 1.1
    scheme.add([99], features[:1])
    assert (scheme(torch.tensor([99])) - scheme.mean).norm().item() < 0.3


def test_a_copy_that_is_told_more_leaves_the_first_alone(fitted):
    scheme, features, _, _ = fitted
    other = copy.deepcopy(scheme)
    other.add([1], features[:1])
    assert not scheme.is_described(torch.tensor([1]))


def test_no_budget_can_make_it():
    with pytest.raises(ValueError, match="scheme that is trained"):
        WithDescribedIds.from_budget("1/1", embedding_dim=4, vocab_size=4)
