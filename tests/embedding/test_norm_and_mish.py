import pytest
import torch
import torch.nn.functional as F

from tableless import DeepHashEmbedding
from tableless.embedding import decoders
from tableless.embedding.layers import norm_and_mish


def example(rows=50, width=37, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, generator=generator) * 3 + 1
    weight, bias = torch.rand(width, generator=generator) + 0.5, torch.randn(width, generator=generator)
    return [tensor.requires_grad_() for tensor in (x, weight, bias)]


@pytest.mark.parametrize("rows", [2, 50, 3000])
def test_value_and_gradients_are_those_of_batch_norm_and_mish(rows):
    ours, theirs = example(rows), example(rows)
    out, mean, variance = norm_and_mish(*ours, 1e-5)
    expected = F.mish(F.batch_norm(theirs[0], None, None, theirs[1], theirs[2], True, 0.1, 1e-5))
    torch.testing.assert_close(out, expected, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(mean, ours[0].mean(0), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(variance, ours[0].var(0, unbiased=False), atol=1e-5, rtol=1e-4)
    direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    (out * direction).sum().backward()
    (expected * direction).sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, atol=2e-4, rtol=1e-3)


def test_a_column_without_variance_and_large_values_stay_finite():
    x, weight, bias = example()
    with torch.no_grad():
        x[:, 0] = 7.0
        x[:, 1] *= 1e4
    out, _, _ = norm_and_mish(x, weight, bias, 1e-5)
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad.isfinite().all()


def test_a_network_trains_alike_with_the_operator_and_without(monkeypatch):
    results = []
    for fused in (True, False):
        if not fused:
            monkeypatch.setattr(decoders, "uses_kernels", lambda rows: False)
        scheme = DeepHashEmbedding(8, width=16, num_hashes=32, initial_std=1.0)
        scheme(torch.arange(200)).square().mean().backward()
        norm = scheme.decoder.hidden[2].norm
        results.append((scheme.decoder.hidden[0].linear.weight.grad, norm.running_mean, norm.running_var))
        assert norm.num_batches_tracked == 1
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-3)
