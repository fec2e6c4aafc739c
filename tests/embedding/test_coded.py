"""Coded rows: near the table by any kind of raw id, the same by every path, open to ids that were not put in."""

from __future__ import annotations

import pytest
import torch

from tableless import DeepHashEmbedding, SideFeatures, distil, load_scheme, save_scheme, to_ids
from tableless.embedding.tables import CodedEmbedding, coded_rows

pytestmark = pytest.mark.filterwarnings("ignore:.*of the table's variance is unexplained")

COUNT, DIM = 600, 12


def table(count=COUNT, seed=0):
    random = torch.Generator().manual_seed(seed)
    lengths = torch.rand(count, 1, generator=random).mul(2).exp()
    return torch.randn(count, DIM, generator=random) * torch.linspace(2, 0.2, DIM) * lengths


def fitted(ids, rows, budget="8B/id", **options):
    scheme = CodedEmbedding.from_budget(budget, embedding_dim=DIM, vocab_size=len(ids), **options)
    distil(rows, scheme, ids=ids, progress=False)
    return scheme


KINDS = {
    "rows": torch.arange(COUNT),
    "strings": to_ids([f"item {number}" for number in range(COUNT)]),
    "gaps": torch.arange(COUNT) * 2**40 - 2**45,
    "negative": -1 - 7 * torch.arange(COUNT),
}


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_near_the_rows_of_the_table(kind):
    ids, rows = KINDS[kind], table()
    scheme = fitted(ids, rows)
    with torch.no_grad():
        vectors = scheme(ids)
    assert (vectors - rows).square().sum() < 0.06 * rows.square().sum()
    lengths = vectors.norm(dim=1) / rows.norm(dim=1)
    assert 0.97 < lengths.median() < 1.03, "the gain keeps the length of a vector"
    shuffled = torch.randperm(COUNT, generator=torch.Generator().manual_seed(1))
    assert torch.equal(scheme(ids[shuffled]).detach(), vectors[shuffled])


def test_more_bits_leave_less():
    rows = table()
    left = []
    for budget in ("4B/id", "6B/id", "8B/id", "12B/id"):
        scheme = fitted(KINDS["gaps"], rows, budget)
        left.append(float((scheme(KINDS["gaps"]) - rows).square().sum().detach()))
        assert scheme.num_bytes <= float(budget[: budget.index("B")]) * COUNT
    assert left == sorted(left, reverse=True)
    assert left[0] > 5 * left[-1]


@pytest.mark.parametrize("check_bits", [0, 5])
@pytest.mark.parametrize("budget", ["3B/id", "9B/id"])
def test_every_path_gives_the_same_vectors(budget, check_bits):
    scheme = fitted(KINDS["strings"], table(), budget, check_bits=check_bits)
    ids = torch.cat([KINDS["strings"], torch.arange(50)])
    with torch.no_grad():
        in_one_pass = scheme(ids)
    assert torch.equal(scheme(ids), in_one_pass), "with gradients"
    rows = scheme.finder(ids)
    for one, other in zip(scheme.rows._codes_by_kernel(rows), scheme.rows._codes_by_torch(rows), strict=True):
        assert torch.equal(one, other)


def test_check_bits_tell_ids_that_were_not_put_in():
    rows = table()
    scheme = fitted(KINDS["gaps"], rows, "9B/id", check_bits=6)
    strangers = torch.arange(1, 4001) * 2**40 + 12_345
    with torch.no_grad():
        vectors, known = scheme(strangers), scheme(KINDS["gaps"])
    is_mean = torch.isclose(vectors, rows.mean(0), atol=1e-5).all(1)
    assert 1 / 200 < 1 - is_mean.float().mean() < 1 / 25, "one in 64 passes"
    assert not torch.isclose(known, rows.mean(0), atol=1e-5).all(1).any()


def test_ids_can_be_added_replaced_saved_and_loaded(tmp_path):
    scheme = fitted(KINDS["rows"], table())
    before = scheme(torch.arange(COUNT)).detach()
    bytes_before = scheme.num_bytes
    scheme.add(torch.tensor([5_000, -3]), torch.stack([torch.ones(DIM), torch.full((DIM,), 2.0)]))
    scheme.add(torch.tensor([-3, 7]), torch.stack([torch.full((DIM,), 4.0), torch.full((DIM,), 5.0)]))
    save_scheme(scheme, tmp_path / "scheme")
    for one in (scheme, load_scheme(tmp_path / "scheme")):
        added = one(torch.tensor([5_000, -3, 7])).detach()
        assert added[:, 0].tolist() == [1, 4, 5]
        after = one(torch.arange(COUNT)).detach()
        assert torch.equal(after[8:], before[8:])
        assert one.bytes_by_part()["added rows"] == one.num_bytes - bytes_before
    with pytest.raises(ValueError, match="of which 1 are distinct"):
        scheme.add(torch.tensor([4, 4]), torch.ones(2, DIM))


def test_too_many_ids_are_refused_and_fewer_are_fine():
    scheme = CodedEmbedding.from_budget("8B/id", embedding_dim=DIM, vocab_size=100)
    with pytest.raises(ValueError, match="600 ids do not fit into vocab_size=100"):
        distil(table(), scheme, ids=KINDS["rows"], progress=False)
    rows = table(40)
    distil(rows, scheme, ids=KINDS["gaps"][:40], progress=False)
    assert (scheme(KINDS["gaps"][:40]) - rows).square().sum() < 0.1 * rows.square().sum()


def test_rows_of_an_id_that_is_given_twice_are_averaged():
    rows = table()
    ids = torch.cat([KINDS["gaps"], KINDS["gaps"]])
    scheme = CodedEmbedding.from_budget("12B/id", embedding_dim=DIM, vocab_size=COUNT)
    distil(torch.cat([rows + 0.5, rows - 0.5]), scheme, ids=ids, progress=False)
    assert (scheme(KINDS["gaps"]) - rows).square().sum() < 0.05 * rows.square().sum()


def test_a_rotation_helps_where_dimensions_depend_on_each_other():
    random = torch.Generator().manual_seed(5)
    rows = torch.randn(COUNT, 3, generator=random) @ torch.randn(3, DIM, generator=random)
    left = {}
    for rotated in (False, True):
        scheme = CodedEmbedding(DIM, vocab_size=COUNT, num_bits=28, rotated=rotated)
        distil(rows, scheme, ids=KINDS["rows"], progress=False)
        left[rotated] = float((scheme(KINDS["rows"]) - rows).square().sum().detach() / rows.square().sum())
    assert left[True] < left[False] / 4


def test_a_large_table_is_rotated_and_a_small_one_is_not():
    sizes = {"embedding_dim": 32}
    assert not CodedEmbedding.from_budget("8B/id", vocab_size=2_000, **sizes).rotated
    with torch.device("meta"):
        assert CodedEmbedding.from_budget("8B/id", vocab_size=1_000_000, **sizes).rotated


def test_a_damaged_layout_is_refused():
    scheme = fitted(KINDS["rows"], table())
    state = {key: value.clone() for key, value in scheme.state_dict().items()}
    state["rows.ends"][-1] += 1
    with pytest.raises(ValueError, match="the file is damaged"):
        scheme.load_state_dict(state)


@pytest.mark.parametrize("seed", [0, 1])
def test_codes_of_any_value_give_vectors(seed):
    scheme = fitted(KINDS["rows"], table())
    random = torch.Generator().manual_seed(seed)
    for name in ("rows.codes", "finder.cells", "finder.ranks"):
        buffer = scheme.get_buffer(name)
        buffer.copy_(torch.empty_like(buffer).random_(generator=random))
    with torch.no_grad():
        assert scheme(torch.empty(5_000, dtype=torch.int64).random_(generator=random)).isfinite().all()


NETWORK = {"width": 24, "depth": 2, "num_hashes": 16, "normalization": "none", "weight_bits": 8}


@pytest.fixture(scope="module")
def with_network():
    """Rows in two groups; what tells them apart is known of ids that were never put in, too: their side features."""
    everyone = torch.arange(2 * COUNT) * 2**40 - 2**45
    side = SideFeatures.from_matrix(everyone, (torch.arange(2 * COUNT) % 2).float().unsqueeze(-1))
    rows = table() * 0.1 + (torch.arange(COUNT) % 2).unsqueeze(-1) * 5.0
    scheme = CodedEmbedding(
        DIM, vocab_size=COUNT, num_bits=60, check_bits=9, network={**NETWORK, "side_features": side}
    )
    distil(rows, scheme, ids=everyone[:COUNT], visits=60, progress=False)
    return scheme, everyone, rows


def test_a_network_answers_for_ids_that_were_not_put_in(with_network):
    scheme, everyone, rows = with_network
    with torch.no_grad():
        vectors, computed = scheme(everyone), scheme.tail(everyone)
    is_computed = torch.isclose(vectors, computed).all(1)
    assert not is_computed[:COUNT].any()
    assert is_computed[COUNT:].float().mean() > 0.98, "one in 512 passes the check"
    assert (vectors[:COUNT] - rows).square().sum() < 0.02 * rows.square().sum()
    is_near = (vectors[COUNT:].mean(1) > 2.5) == (torch.arange(COUNT) % 2 == 1)
    assert is_near.float().mean() > 0.9, "the network knows what ids have in common"


def test_known_ids_have_the_vectors_that_they_have_without_a_network(with_network):
    scheme, everyone, rows = with_network
    plain = CodedEmbedding(DIM, vocab_size=COUNT, num_bits=60, check_bits=9)
    distil(rows, plain, ids=everyone[:COUNT], progress=False)
    with torch.no_grad():
        assert torch.equal(plain(everyone[:COUNT]), scheme(everyone[:COUNT]))


def test_a_network_is_saved_served_exported_and_counted(with_network, tmp_path):
    scheme, everyone, _ = with_network
    save_scheme(scheme, tmp_path / "scheme")
    loaded = load_scheme(tmp_path / "scheme")
    with torch.no_grad():
        wanted = scheme(everyone)
        assert torch.equal(loaded(everyone), wanted)
        for path in (scheme.served("fp32", everyone).vectors, loaded.served("fp32", everyone).vectors):
            torch.testing.assert_close(path(everyone), wanted, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(scheme.exported()(everyone), wanted, atol=1e-5, rtol=1e-4)
        assert scheme.served("int8", everyone).precision == "int8"
    assert torch.allclose(scheme(everyone).detach(), wanted, atol=1e-6), "with gradients"
    parts = scheme.bytes_by_part()
    alone = DeepHashEmbedding(DIM, **{**scheme.network, "side_features": scheme.tail.side_features})
    assert {name: parts[name] for name in ("network", "hash functions", "side features")} == {
        {"weights": "network"}.get(name, name): size for name, size in alone.bytes_by_part().items()
    }


def test_a_network_takes_its_share_of_the_budget():
    sizes = {"embedding_dim": DIM, "vocab_size": 5_000, "check_bits": 8}
    plain = CodedEmbedding.from_budget("8B/id", **sizes)
    scheme = CodedEmbedding.from_budget("8B/id", network_share=0.2, num_hashes=16, **sizes)
    parts = scheme.bytes_by_part()
    assert 0.15 * 40_000 < parts["network"] + parts["hash functions"] <= 0.2 * 40_000
    assert 38_000 < scheme.num_bytes <= 40_000
    assert scheme.num_bits < plain.num_bits
    assert scheme.network["num_hashes"] == 16
    assert plain.network is None
    for wrong in ({"network_share": 1.0}, {"network_share": -0.1}, {"num_hashes": 16}):
        with pytest.raises(ValueError, match="network_share"):
            CodedEmbedding.from_budget("8B/id", **sizes, **wrong)
    with pytest.raises(ValueError, match="give check_bits"):
        CodedEmbedding.from_budget("8B/id", **{**sizes, "check_bits": 0}, network_share=0.2)


def test_too_few_bits_are_refused():
    with pytest.raises(ValueError, match="leaves 2 bits for the direction"):
        CodedEmbedding(DIM, vocab_size=10, num_bits=6)
    with pytest.raises(ValueError, match="more than 12 dimensions can use"):
        CodedEmbedding(DIM, vocab_size=10, num_bits=100)


def test_blocks_on_two_threads_give_the_codes_and_the_mean_of_one(monkeypatch):
    monkeypatch.setattr(coded_rows, "_BLOCK", 300 * 8)  # so that seven blocks are coded, and rows share words
    ids, rows = torch.arange(2_000) * 7 - 900, torch.randn(2_000, 8, generator=torch.Generator().manual_seed(4))
    found, told = [], []
    for threads in (1, 2, 2):
        monkeypatch.setenv("TABLELESS_THREADS", str(threads))
        scheme = CodedEmbedding(8, vocab_size=2_000, num_bits=29, check_bits=8, window=6)
        scheme.on_rows = lambda done, total: told.append((done, total))
        distil(rows, scheme, ids=ids)
        found.append(scheme.state_dict())
    for other in found[1:]:
        assert all(torch.equal(value, other[name]) for name, value in found[0].items())
    torch.testing.assert_close(found[0]["unknown.mean"], rows.mean(0))
    assert told.count((2_000, 2_000)) == 3


@pytest.mark.parametrize(
    ("budget", "vocab_size", "expected"),
    [("4.5B/id", 5_000, 4), ("9B/id", 5_000, 6), ("20B/id", 5_000, 7), ("9B/id", 300, 4)],
)
def test_a_row_of_many_bits_has_more_of_them_for_its_length(budget, vocab_size, expected):
    sizes = {"embedding_dim": 32, "vocab_size": vocab_size}
    assert CodedEmbedding.from_budget(budget, **sizes).gain_bits == expected
    assert CodedEmbedding.from_budget(budget, **sizes, gain_bits=3).gain_bits == 3
