"""Rows of few bits: what is lost, and how they lie in bytes."""

import numpy as np
import pytest
import torch

from tableless import distil
from tableless.embedding.tables import QuantizedEmbedding
from tableless.embedding.tables.quantized import _rounded_up
from tableless.kernels.few_bits import float_of_half

VOCAB, DIM = 400, 32


def table(seed=0, scale=1.0, offset=1.0):
    """Rows of very different sizes, and with a mean of their own."""
    random = torch.Generator().manual_seed(seed)
    rows = torch.randn(VOCAB, DIM, generator=random) + offset * torch.randn(VOCAB, 1, generator=random)
    return rows * (torch.rand(VOCAB, 1, generator=random) * 10 + 0.01) * scale


@pytest.mark.parametrize(("bits", "per_id"), [(8, 36), (4, 20), (2, 12)])
def test_at_32_dimensions_an_id_takes_so_many_bytes(bits, per_id):
    parts = QuantizedEmbedding(32, vocab_size=1000, bits=bits).bytes_by_part()
    assert parts["scales"] == 1000 * 4
    assert parts["codes"] + parts["scales"] == 1000 * per_id


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("scale", [1, 1e-3, 1e3])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_number_is_within_half_a_step(bits, scale, seed):
    rows = table(seed, scale)
    scheme = QuantizedEmbedding(DIM, vocab_size=VOCAB, bits=bits)
    distil(rows, scheme)
    steps = (rows.amax(-1) - rows.amin(-1)) / (2**bits - 1)
    worst = (scheme(torch.arange(VOCAB)) - rows).abs().amax(-1)
    assert (worst <= 0.51 * (steps + 2**-24)).all()  # a step is a float16 itself, rounded up
    assert (worst >= 0.2 * steps).all()


def test_steps_are_rounded_up_to_float16_and_those_that_are_float16_stay():
    halves, following = (
        torch.arange(1, 0x7C00).to(torch.int16).view(torch.float16).float()[at] for at in (np.s_[:-1], np.s_[1:])
    )
    assert torch.equal(_rounded_up(halves), halves)
    assert torch.equal(_rounded_up(halves * (1 + 1e-7)), halves)
    assert torch.equal(_rounded_up(halves + 0.01 * (following - halves)), following)


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("offset", [30, 1000])
def test_rows_far_from_zero_are_as_fine_as_float16_is_there(bits, offset):
    rows = table(offset=offset)
    scheme = QuantizedEmbedding(DIM, vocab_size=VOCAB, bits=bits)
    distil(rows, scheme)
    vectors = scheme(torch.arange(VOCAB))
    steps = (rows.amax(-1) - rows.amin(-1)) / (2**bits - 1)
    assert ((vectors - rows).abs().amax(-1) <= 0.6 * steps.maximum(rows.abs().amax(-1) / 2**10)).all() or bits == 2
    scheme.pack()
    scheme.unpack()
    assert torch.equal(scheme(torch.arange(VOCAB)), vectors)


def test_two_bits_cut_the_ends_and_lose_less_by_it():
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(VOCAB, DIM, generator=random)
    scheme = QuantizedEmbedding(DIM, vocab_size=VOCAB, bits=2)
    scheme.fit_directly(torch.arange(VOCAB), rows, metric=torch.eye(DIM), weights=torch.ones(VOCAB))
    low, high = rows.amin(-1, keepdim=True), rows.amax(-1, keepdim=True)
    uncut = low + ((rows - low) / (high - low) * 3).round() / 3 * (high - low)
    ours, theirs = ((one - rows).square().sum() for one in (scheme(torch.arange(VOCAB)), uncut))
    assert ours < 0.8 * theirs


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_a_known_answer(bits):
    """Worked out by hand: a vector is offset + step · code, and codes lie in a byte from its lowest bits on."""
    scheme = QuantizedEmbedding(5, vocab_size=2, bits=bits, packed=True)
    codes = {8: [[0, 1, 2, 200, 255]], 4: [[0x10, 0xC2, 0x0F]], 2: [[0b11_10_01_00, 0b10]]}[bits]
    scheme.load_state_dict(
        {
            "codes": torch.tensor([codes[0], [0] * len(codes[0])], dtype=torch.uint8),
            "ranges.numbers": torch.tensor([[-2.0, 0.25], [1.5, 0.0]], dtype=torch.float16),
        }
    )
    numbers = {8: [0, 1, 2, 200, 255], 4: [0, 1, 2, 12, 15], 2: [0, 1, 2, 3, 2]}[bits]
    assert scheme(torch.tensor([0, 1])).tolist() == [[-2 + number / 4 for number in numbers], [1.5] * 5]


def test_the_loop_reads_every_finite_float16_as_torch_does():
    halves = torch.arange(-(2**15), 2**15).to(torch.int16)
    expected = halves.view(torch.float16).float()
    finite = expected.isfinite()
    found = torch.tensor([float_of_half(np.int16(own)) for own in halves[finite].tolist()])
    assert torch.equal(found, expected[finite])


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("dim", [1, 3, 16, 33])
def test_the_loop_and_plain_operations_give_the_same_bits(bits, dim, monkeypatch):
    random = torch.Generator().manual_seed(dim)
    rows = torch.randn(VOCAB, dim, generator=random)
    scheme = QuantizedEmbedding(dim, vocab_size=VOCAB, bits=bits)
    scheme.fit_directly(torch.arange(VOCAB), rows, metric=torch.eye(dim), weights=torch.ones(VOCAB))
    scheme.pack()
    ids = torch.randint(VOCAB, (3, 50), generator=random)
    by_loop = scheme(ids)
    monkeypatch.setattr("tableless.embedding.tables.quantized.uses_kernels", lambda tensor: False)
    assert torch.equal(scheme(ids), by_loop)


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_rows_whose_numbers_are_all_the_same_keep_them(bits):
    rows = torch.tensor([0.0, 1.0, -3.5, 1e-3]).unsqueeze(-1).expand(4, 8).contiguous()
    scheme = QuantizedEmbedding(8, vocab_size=4, bits=bits)
    distil(rows, scheme)
    torch.testing.assert_close(scheme(torch.arange(4)), rows, atol=1e-6, rtol=0)


def test_rows_that_are_not_given_stay_as_they_were():
    scheme, ids = QuantizedEmbedding(DIM, vocab_size=VOCAB + 7), torch.randperm(VOCAB)
    before = scheme(torch.arange(VOCAB, VOCAB + 7))
    scheme.fit_directly(ids, table(), metric=torch.eye(DIM), weights=torch.ones(VOCAB))
    assert torch.equal(scheme(torch.arange(VOCAB, VOCAB + 7)), before)


def test_the_most_bits_that_fit_are_taken():
    sizes = {"embedding_dim": 32, "vocab_size": 1000}
    for budget, bits in [("1/2", 8), ("37B/id", 8), ("35B/id", 4), ("21B/id", 4), ("1/8", 2), ("13 B/id", 2)]:
        assert QuantizedEmbedding.from_budget(budget, **sizes).bits == bits
    assert QuantizedEmbedding.from_budget(5500, **sizes).bits == 4  # parameters count four bytes each
    with pytest.raises(
        ValueError, match=r"a budget of 11000 bytes is too small; the smallest possible here is 12\d\d\d"
    ):
        QuantizedEmbedding.from_budget("11B/id", **sizes)


def test_other_numbers_of_bits_and_rows_that_are_too_large_are_refused():
    with pytest.raises(ValueError, match="bits is 3; it must be 8, 4 or 2"):
        QuantizedEmbedding(4, vocab_size=3, bits=3)
    with pytest.raises(ValueError, match="Divide the rows"):
        distil(torch.full((3, 4), 1e6), QuantizedEmbedding(4, vocab_size=3))


def test_the_gradient_is_that_of_rows_that_are_not_rounded():
    scheme, ids = QuantizedEmbedding(DIM, vocab_size=VOCAB, bits=2), torch.tensor([[3, 5], [3, 9]])
    weights = torch.randn(2, 2, DIM, generator=torch.Generator().manual_seed(0))
    (scheme(ids) * weights).sum().backward()
    expected = torch.zeros(VOCAB, DIM)
    expected.index_add_(0, ids.flatten(), weights.view(-1, DIM))
    torch.testing.assert_close(scheme.table.grad, expected)
