"""Codes of few bits in bytes, and numbers that are stored as float16."""

import pytest
import torch

from tableless.embedding.rounding import HalfNumbers, bytes_for, pack_codes, require_half, unpack_codes


def drawn(*shape, bits, seed=0):
    return torch.randint(2**bits, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 7, 8, 9, 10, 13, 16, 17, 20, 29])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 31])
def test_codes_come_back_as_they_went_in(bits, count):
    codes = drawn(50, count, bits=bits)
    codes[0], codes[1] = 0, 2**bits - 1
    packed = pack_codes(codes, bits)
    assert packed.dtype == torch.uint8
    assert packed.shape == (50, bytes_for(count, bits))
    assert torch.equal(unpack_codes(packed, count, bits), codes)
    assert torch.equal(unpack_codes(packed.view(5, 10, -1), count, bits), codes.view(5, 10, count))


@pytest.mark.parametrize("bits", [2, 5, 8, 12])
def test_a_code_s_bits_stand_where_a_long_number_would_have_them(bits):
    codes = drawn(7, bits=bits)
    number = sum(int(code) << (place * bits) for place, code in enumerate(codes))
    expected = number.to_bytes(bytes_for(7, bits), "little")
    assert bytes(pack_codes(codes, bits).tolist()) == expected


def test_a_number_that_is_trained_is_used_as_it_will_be_stored():
    start = torch.tensor([1 / 3, -2.0, 1e-4])
    numbers = HalfNumbers(values=torch.nn.Parameter(start.clone()))
    rounded = numbers()
    assert torch.equal(rounded, start.half().float())
    assert not torch.equal(rounded, start)
    (rounded * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert numbers.values.grad.tolist() == [1, 2, 3]
    numbers.pack()
    assert list(numbers.state_dict()) == ["numbers"]
    assert not list(numbers.parameters())
    assert torch.equal(numbers(), rounded)
    numbers.unpack()
    assert torch.equal(numbers.values, rounded)
    assert list(numbers.state_dict()) == ["values"]


def test_stored_numbers_stay_float16_and_answer_in_the_type_of_the_model():
    numbers = HalfNumbers(3)
    numbers.numbers.copy_(torch.tensor([1 / 3, -2.0, 1e-4]))
    stored = numbers.numbers.clone()
    for dtype in (torch.bfloat16, torch.float64, torch.float32, torch.float16):
        numbers.to(dtype)
        assert torch.equal(numbers.numbers, stored)
        assert torch.equal(numbers(), stored.to(dtype))


@pytest.mark.parametrize("value", [7e4, -1e30, float("inf"), float("nan")])
def test_rows_that_float16_does_not_have_are_refused(value):
    require_half(torch.tensor([[65_504.0, -65_504.0]]))
    with pytest.raises(ValueError, match="65504 is the largest that can be stored here"):
        require_half(torch.tensor([[0.0, value]]))
