import pytest
import torch

from tableless.embedding.rounded_matrix import RoundedMatrix
from tableless.embedding.rounding import (
    bytes_for,
    largest_integer,
    pack_bits,
    require_bits,
    rounded,
    to_floats,
    to_integers,
    unpack_bits,
)

every_width = pytest.mark.parametrize("bits", range(2, 9))


def numbers(*shape, seed=0):
    """Rows of very different sizes, one of them zero."""
    generator = torch.Generator().manual_seed(seed)
    sizes = 10.0 ** torch.randint(-8, 4, (*shape[:-1], 1), generator=generator)
    values = torch.randn(*shape, generator=generator) * sizes
    values[..., 0, :] = 0
    return values


@every_width
@pytest.mark.parametrize("columns", [1, 2, 5, 8, 13, 170])
def test_integers_come_back_out_of_their_bytes(bits, columns):
    most = largest_integer(bits)
    integers = torch.randint(-most, most + 1, (3, 7, columns), generator=torch.Generator().manual_seed(bits))
    integers[0, 0], integers[0, 1] = most, -most
    packed = pack_bits(integers.to(torch.int8), bits)
    assert packed.shape == (3, 7, bytes_for(columns, bits))
    assert packed.element_size() == 1
    assert torch.equal(unpack_bits(packed, bits, columns), integers.to(torch.int8))


def test_the_layout_of_the_bits_is_as_written_down():
    """Files depend on it: each integer plus the largest one, lowest bit first, one after the other."""
    assert pack_bits(torch.tensor([[-7, 7, 0]], dtype=torch.int8), 4).tolist() == [[0xE0, 0x07]]
    assert pack_bits(torch.tensor([[1, -1, 0, 1]], dtype=torch.int8), 2).tolist() == [[0b10_01_00_10]]
    assert pack_bits(torch.tensor([[3, -3, 2]], dtype=torch.int8), 3).tolist() == [[0b01_000_110, 0b1]]


@every_width
def test_an_error_is_at_most_half_a_step(bits):
    values = numbers(5, 4, 33)
    integers, scale = to_integers(values, bits)
    errors = (to_floats(integers, scale) - values).abs()
    # The scale has eight significant bits, so that the largest number of a row may lie a little beyond its last step.
    assert (errors <= (0.5 + 2**-8 * largest_integer(bits)) * scale.float().unsqueeze(-1)).all()
    assert integers.abs().max() == largest_integer(bits)


@every_width
@pytest.mark.parametrize("seed", [0, 1])
def test_rounding_a_second_time_changes_nothing(bits, seed):
    once = rounded(numbers(6, 50, seed=seed), bits)
    assert torch.equal(rounded(once, bits), once)


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_gradients_pass_as_if_nothing_had_been_rounded(bits):
    values = numbers(3, 9).requires_grad_()
    weights = torch.randn(3, 9)
    (rounded(values, bits) * weights).sum().backward()
    assert torch.equal(values.grad, weights)


def test_a_number_that_is_not_finite_is_not_hidden():
    values = torch.ones(2, 4)
    values[0, 1] = torch.nan
    assert rounded(values, 8)[0].isnan().all()
    assert rounded(values, 8)[1].isfinite().all()


@pytest.mark.parametrize("bits", [0, 1, 9, 31, 64])
def test_a_number_of_bits_that_nothing_can_be_stored_in_is_refused(bits):
    with pytest.raises(ValueError, match=f"weight_bits is {bits}; it must be one of 32, 16, 8, 7"):
        require_bits("weight_bits", bits)


@pytest.mark.parametrize("bits", [16, 8, 7, 6, 5, 4, 3, 2])
@pytest.mark.parametrize("shape", [(40, 11), (3, 40, 11)])
def test_a_matrix_has_the_same_numbers_in_both_forms(bits, shape):
    matrix = RoundedMatrix(shape, bits=bits, values=torch.nn.Parameter(numbers(*shape)))
    before = matrix().detach()
    matrix.pack()
    assert not list(matrix.parameters())
    assert torch.equal(matrix(), before)
    empty = RoundedMatrix(shape, bits=bits)
    empty.load_state_dict(matrix.state_dict())
    assert torch.equal(empty(), before)
    matrix.unpack()
    assert torch.equal(matrix(), before)
    matrix.pack()
    assert torch.equal(matrix(), before)


@pytest.mark.parametrize("bits", [16, 8, 3])
def test_some_rows_of_a_matrix_are_those_of_the_whole(bits):
    matrix = RoundedMatrix((40, 11), bits=bits, values=torch.nn.Parameter(numbers(40, 11)))
    places = torch.tensor([[3, 39], [0, 3]])
    for _ in range(2):
        assert torch.equal(matrix.rows(places), matrix()[places])
        matrix.pack()


@pytest.mark.parametrize("bits", [16, 8, 4])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_what_is_stored_does_not_follow_the_type_of_the_model(bits, dtype):
    values = numbers(20, 6).clamp(-1e3, 1e3)  # float16 could not even hold the scales
    matrix = RoundedMatrix((20, 6), bits=bits, values=torch.nn.Parameter(values))
    matrix.pack()
    before, stored = matrix(), matrix.state_dict()
    matrix.to(dtype)
    assert matrix().dtype == dtype
    assert all(torch.equal(tensor, stored[name]) for name, tensor in matrix.state_dict().items())
    assert torch.equal(matrix(torch.float32), before)
