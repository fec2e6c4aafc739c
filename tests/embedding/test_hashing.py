import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tableless import HashFamily
from tableless.embedding.hashing import kernel_buckets, torch_buckets

INT64 = st.integers(-(2**63), 2**63 - 1)
EXTREMES = [0, 1, -1, 2**31, 2**32 - 1, 2**32, -(2**32), 2**63 - 1, -(2**63)]
SPEC_BUCKETS = {
    0: [323631, 88414, 889616, 405029, 338193, 550544],
    1: [767715, 389828, 11525, 30052, 636725, 317314],
    7: [242561, 198312, 517152, 944937, 847761, 234912],
    2**31: [946506, 793574, 804769, 982178, 618871, 979471],
    2**63 - 1: [39341, 371554, 598574, 415990, 249974, 88252],
    -1: [446962, 465178, 237689, 678455, 583994, 708042],
    -(2**63): [636423, 182038, 528731, 667494, 672213, 170334],
}


def exact(family: HashFamily, value: int) -> list[int]:
    """The specification in Python's unbounded integers."""
    u = value % 2**64
    return [
        (high * (u >> 32) + low * (u % 2**32) + b) % p % family.num_buckets
        for high, low, b, p in family.coefficients.tolist()
    ]


def test_the_coefficients_are_those_of_the_specification():
    coefficients = HashFamily(1024, seed=0).coefficients
    assert coefficients.dtype == torch.int64
    assert coefficients[:3].tolist() == [
        [301493577, 190444084, 720323631, 1011094829],
        [89884771, 29301414, 290088414, 593965381],
        [661412727, 599896082, 221889616, 668774173],
    ]
    assert coefficients[-1].tolist() == [92538149, 403699331, 41179791, 1070087387]


@pytest.mark.parametrize(("value", "expected"), SPEC_BUCKETS.items())
def test_the_buckets_are_those_of_the_specification(value, expected):
    family = HashFamily(1024)
    assert family.buckets(torch.tensor(value))[:6].tolist() == expected
    assert torch_buckets(torch.tensor(value), family.coefficients, 1_000_000)[:6].tolist() == expected


@given(st.lists(INT64, min_size=1), st.sampled_from([1, 2, 3, 1000, 1_000_000, 2**29]), st.integers(0, 2**70))
def test_kernel_and_torch_agree_with_exact_arithmetic_over_all_of_int64(values, num_buckets, seed):
    family = HashFamily(16, num_buckets, seed)
    ids = torch.tensor(values)
    expected = [exact(family, value) for value in values]
    assert kernel_buckets(ids, family.coefficients, num_buckets).tolist() == expected
    assert torch_buckets(ids, family.coefficients, num_buckets).tolist() == expected


def test_kernel_and_torch_agree_on_a_million_buckets_at_random():
    family = HashFamily(1024)
    random = np.random.default_rng(0).integers(-(2**63), 2**63, 1000)
    ids = torch.cat([torch.tensor(EXTREMES), torch.from_numpy(random)])
    buckets = kernel_buckets(ids, family.coefficients, family.num_buckets)
    assert torch.equal(buckets, torch_buckets(ids, family.coefficients, family.num_buckets))
    assert buckets.min() >= 0
    assert buckets.max() < family.num_buckets


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (2, 3), (2, 0, 3)])
def test_buckets_have_one_more_axis_than_ids(shape):
    assert HashFamily(8).buckets(torch.zeros(shape, dtype=torch.int64)).shape == (*shape, 8)


def test_ids_need_not_be_contiguous():
    ids = torch.arange(20).view(4, 5).T
    assert torch.equal(HashFamily(8).buckets(ids), HashFamily(8).buckets(ids.contiguous()))


@pytest.mark.parametrize("function", [kernel_buckets, torch_buckets])
def test_both_paths_compile_without_a_graph_break_and_export(function):
    family = HashFamily(32)

    class Buckets(torch.nn.Module):
        def forward(self, ids):
            return function(ids, family.coefficients, family.num_buckets)

    ids = torch.tensor(EXTREMES)
    expected = family.buckets(ids)
    # "aot_eager" traces everything that inductor would; generating C++ for it takes half a minute.
    compiled = torch.compile(Buckets(), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(ids), expected)
    exported = torch.export.export(Buckets(), (ids,), dynamic_shapes={"ids": {0: torch.export.Dim.AUTO}})
    assert torch.equal(exported.module()(ids[:4]), expected[:4])


def test_the_hash_family_itself_compiles_without_a_graph_break_and_exports_plain_operations():
    family, ids = HashFamily(32), torch.tensor(EXTREMES)
    assert torch.equal(torch.compile(family, fullgraph=True, backend="aot_eager")(ids), family.buckets(ids))
    exported = torch.export.export(family, (ids,))
    assert "tableless" not in str(exported.graph), "an exported program must not need this library"
    assert torch.equal(exported.module()(ids), family.buckets(ids))


def test_primes_are_distinct_and_far_above_the_number_of_buckets():
    primes = HashFamily(1024).coefficients[:, 3]
    assert len(primes.unique()) == 1024
    assert primes.min() > 2**29
    assert primes.max() < 2**30


def test_a_smaller_family_is_the_beginning_of_a_larger_one():
    assert torch.equal(HashFamily(16, seed=3).coefficients, HashFamily(64, seed=3).coefficients[:16])


def test_coefficients_depend_on_the_seed_alone_and_not_on_construction_order():
    before = HashFamily(16, seed=5).coefficients
    torch.manual_seed(99)
    HashFamily(16, seed=6)
    assert torch.equal(HashFamily(16, seed=5).coefficients, before)
    assert not torch.equal(HashFamily(16, seed=6).coefficients, before)


def test_coefficients_travel_in_the_state_dict():
    family = HashFamily(16, seed=1)
    family.load_state_dict(HashFamily(16, seed=2).state_dict())
    assert torch.equal(family.coefficients, HashFamily(16, seed=2).coefficients)


@pytest.mark.parametrize("arguments", [(0,), (8, 0), (8, 2**29 + 1)])
def test_impossible_families_are_refused(arguments):
    with pytest.raises(ValueError, match=r"num_hashes is 0|num_buckets is"):
        HashFamily(*arguments)
