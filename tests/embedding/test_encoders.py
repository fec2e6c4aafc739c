import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tableless.embedding import encoders, hashing
from tableless.embedding.encoders import BinaryEncoder, DenseHashEncoder, IdentityEncoder, RandomFourierEncoder

INT64 = st.integers(-(2**63), 2**63 - 1)


def random_ids(count):
    return torch.randint(-(2**62), 2**62, (count,), generator=torch.Generator().manual_seed(0))


def correlations(codes):
    centred = codes - codes.mean(0)
    return (centred.T @ centred) / len(codes)


def test_uniform_codes_are_uniform_in_every_coordinate():
    codes = DenseHashEncoder(256)(random_ids(20_000))
    assert codes.dtype == torch.float32
    assert codes.min() >= -1
    assert codes.max() <= 1
    assert codes.mean(0).abs().max() < 5 / math.sqrt(3 * 20_000), "a prime just above m shifts the mean by 0.17"
    share = torch.stack([(codes < bound).float().mean(0) for bound in torch.linspace(-0.9, 0.9, 19)])
    assert (share - torch.linspace(0.05, 0.95, 19).unsqueeze(-1)).abs().max() < 0.025


def test_gaussian_codes_are_normal_in_every_coordinate():
    codes = DenseHashEncoder(256, distribution="gaussian")(random_ids(20_000))
    assert codes.mean(0).abs().max() < 5 / math.sqrt(20_000)
    assert (codes.std(0) - 1).abs().max() < 0.05
    within = (codes.abs() < 1.96).float().mean(0)
    assert (within - 0.95).abs().max() < 0.01


@pytest.mark.parametrize("distribution", ["uniform", "gaussian"])
def test_coordinates_are_uncorrelated(distribution):
    encoder = DenseHashEncoder(64, distribution=distribution)
    products = correlations(encoder(random_ids(20_000))) / encoder.mean_square
    products.fill_diagonal_(0)
    assert products.abs().max() < 0.05


def test_consecutive_ids_are_spread_as_evenly_as_random_ones_on_the_whole():
    # A line x → a·x + b visits its buckets in a regular pattern: nearly always more evenly than chance, but here and
    # there two coordinates are correlated. The specification has it so; what must hold is that it stays rare.
    encoder = DenseHashEncoder(256)
    codes = encoder(torch.arange(20_000))
    assert codes.mean(0).abs().max() < 0.05
    products = correlations(codes) / encoder.mean_square
    products.fill_diagonal_(0)
    assert products.square().mean().sqrt() < 1.1 / math.sqrt(20_000)
    assert (products.abs() > 0.05).float().mean() < 0.005


@pytest.mark.parametrize("distribution", ["uniform", "gaussian"])
def test_any_two_ids_are_equally_far_apart(distribution):
    encoder = DenseHashEncoder(distribution=distribution)
    base = torch.randint(-(2**62), 2**62, (300,), generator=torch.Generator().manual_seed(0))
    codes = encoder(base)
    expected = math.sqrt(2 * encoder.mean_square * 1024)
    for step in (1, 2, 1000, 2**31, 2**32, 536870923):
        distances = (encoder(base + step) - codes).norm(dim=-1)
        # One distance varies by 2–3 % with a thousand coordinates; neighbours must not be closer than strangers.
        assert abs(distances.mean() / expected - 1) < 0.02
        assert (distances / expected - 1).abs().max() < 0.12


def test_two_ids_share_a_bucket_about_as_often_as_chance_has_it():
    num_buckets = 1000
    buckets = hashing.HashFamily(64, num_buckets).buckets(random_ids(2_000))
    pairs = 2_000 * 1_999 / 2
    shared = sum(float((c * (c - 1) / 2).sum()) for c in (column.bincount().double() for column in buckets.T))
    assert abs(shared / (64 * pairs) * num_buckets - 1) < 0.05


def test_bucket_0_has_a_finite_gaussian_code():
    assert encoders._box_muller(torch.tensor([0, 0, 0, 999_999]), 1_000_000).isfinite().all()
    codes = DenseHashEncoder(1024, distribution="gaussian")(torch.arange(4_000))
    assert codes.isfinite().all(), "the paper's formula gives infinity for one id in 2,000"


@given(st.lists(INT64, min_size=1, max_size=20))
def test_codes_follow_the_specification_in_double_precision(values):
    ids = torch.tensor(values)
    buckets = hashing.HashFamily(8).buckets(ids).double()
    torch.testing.assert_close(DenseHashEncoder(8)(ids).double(), buckets * 2 / 999_999 - 1, atol=1e-6, rtol=0)
    u = (buckets + 0.5) / 1_000_000
    radius, angle = (-2 * u[:, 0::2].log()).sqrt(), 2 * math.pi * u[:, 1::2]
    expected = torch.stack([radius * angle.cos(), radius * angle.sin()], -1).flatten(-2)
    codes = DenseHashEncoder(8, distribution="gaussian")(ids)
    torch.testing.assert_close(codes.double(), expected, atol=1e-6, rtol=0)


@given(st.lists(INT64, min_size=1, max_size=20))
def test_the_torch_path_gives_the_same_codes_as_the_kernel(values):
    encoder, ids = DenseHashEncoder(16), torch.tensor(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoders, "uses_kernels", lambda ids: False)
        plain = encoder(ids)
    torch.testing.assert_close(encoder(ids), plain, atol=1e-6, rtol=0)


def test_an_odd_number_of_gaussian_codes_is_refused():
    with pytest.raises(ValueError, match="num_hashes is 7; gaussian codes are made in pairs"):
        DenseHashEncoder(7, distribution="gaussian")


def test_identity_codes_run_from_zero_to_one():
    assert IdentityEncoder(5)(torch.arange(5)).flatten().tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert IdentityEncoder(1)(torch.tensor([0])).tolist() == [[0]]


@pytest.mark.parametrize(("vocab_size", "bits"), [(1, 1), (2, 1), (3, 2), (8, 3), (9, 4), (1000, 10)])
def test_binary_codes_are_the_bits_of_the_id(vocab_size, bits):
    codes = BinaryEncoder(vocab_size)(torch.arange(vocab_size))
    assert codes.shape == (vocab_size, bits)
    assert (codes @ (2.0 ** torch.arange(bits))).tolist() == list(range(vocab_size))


def test_random_fourier_codes_vary_smoothly_with_the_id_and_have_mean_square_one():
    encoder = RandomFourierEncoder(10_000, 512, scale=20.0)
    codes = encoder(torch.arange(10_000))
    assert abs(float((codes**2).mean()) - 1) < 0.05
    near = (codes[1:] - codes[:-1]).norm(dim=-1).mean()
    far = (codes[5000:] - codes[:5000]).norm(dim=-1).mean()
    assert near < far / 50


@pytest.mark.parametrize("encoder", [IdentityEncoder(10), BinaryEncoder(10), RandomFourierEncoder(10, 4)])
def test_encodings_that_depend_on_the_vocabulary_refuse_ids_beyond_it(encoder):
    with pytest.raises(IndexError, match="id 10 has no row"):
        encoder(torch.tensor([3, 10]))
