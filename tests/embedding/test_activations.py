from typing import get_args

import pytest
import torch
import torch.nn.functional as F

from tableless.embedding.layers import ACTIVATIONS, Activation, mish

WIDE = torch.cat([torch.linspace(-120, 120, 5001), torch.linspace(-3, 3, 5001), torch.tensor([0.0, -0.0, 1e-30])])


def test_every_name_of_an_activation_has_a_function():
    assert set(get_args(Activation)) == set(ACTIVATIONS)


def test_mish_and_its_slope_are_those_of_the_definition():
    exact = WIDE.double().requires_grad_()
    F.mish(exact).sum().backward()
    x = WIDE.clone().requires_grad_()
    out = mish(x)
    out.sum().backward()
    torch.testing.assert_close(out.double(), F.mish(WIDE.double()), atol=1e-6, rtol=2e-7)
    torch.testing.assert_close(x.grad.double(), exact.grad, atol=1e-6, rtol=0)


def test_gradients_of_units_that_are_far_off_are_no_subnormal_numbers():
    """With which the processor computes ten times more slowly."""
    x = WIDE.clone().requires_grad_()
    out = mish(x)
    out.backward(torch.full_like(x, 1e-15))
    smallest = torch.finfo(torch.float32).tiny
    for numbers in (out.detach(), x.grad):
        assert not ((numbers != 0) & (numbers.abs() < smallest)).any()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (511,), (512,), (513,), (3, 0, 2), (7, 5)])
def test_any_shape_will_do(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(mish(x), F.mish(x), atol=1e-6, rtol=1e-6)


def test_rows_need_not_be_contiguous():
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0)).T.requires_grad_()
    mish(x).square().sum().backward()
    y = x.detach().clone().requires_grad_()
    F.mish(y).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad, atol=1e-5, rtol=1e-5)


def test_no_slope_is_computed_where_no_gradient_is_wanted(monkeypatch):
    monkeypatch.delattr("tableless.kernels.activations.mish_and_slope")
    assert not mish(torch.randn(5)).requires_grad
    with torch.no_grad():
        assert not mish(torch.randn(5, requires_grad=True) + 1).requires_grad


def test_it_compiles_without_a_graph_break():
    x = torch.randn(10)
    torch.testing.assert_close(torch.compile(mish, fullgraph=True, backend="aot_eager")(x), mish(x))


def test_double_precision_is_torch_s_own():
    x = torch.randn(10, dtype=torch.float64)
    assert torch.equal(mish(x), F.mish(x))
