"""A scheme with codes has two forms, one that is trained and one that is stored. Both give the same vectors."""

import copy

import pytest
import torch

from tableless import distil, load_scheme, save_scheme
from tableless.embedding.tables import ProductQuantizedEmbedding, QuantizedEmbedding
from tests.embedding.onnx_agreement import assert_onnx_agrees

VOCAB, DIM = 700, 21  # no power of two, and an odd number of codes
ORDER = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(3))

KINDS = {
    **{f"{bits} bits": (QuantizedEmbedding, {"bits": bits}) for bits in (8, 4, 2)},
    **{
        f"{parts} parts of {bits} bits{', rotated' * rotated}": (
            ProductQuantizedEmbedding,
            {"num_parts": parts, "bits_per_part": bits, "rotated": rotated},
        )
        for parts, bits, rotated in [(7, 8, False), (5, 4, False), (21, 4, True), (4, 8, True)]
    },
}
kinds = pytest.mark.parametrize("kind", KINDS)


def make(kind, **arguments):
    scheme, own = KINDS[kind]
    return scheme(DIM, vocab_size=VOCAB, **own, **arguments)


def table(seed=0):
    random = torch.Generator().manual_seed(seed)
    rows = torch.randn(VOCAB, 6, generator=random) @ torch.randn(6, DIM, generator=random)
    return rows + 0.3 * torch.randn(VOCAB, DIM, generator=random) + 0.7


def fitted_and_trained(kind):
    """Fitted to a table, and a few steps away from it."""
    scheme = make(kind)
    distil(table(), scheme)
    optimizer = torch.optim.Adam(scheme.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        (scheme(ORDER) - table(1)).square().mean().backward()
        optimizer.step()
    return scheme


@kinds
@pytest.mark.filterwarnings("ignore:.*unexplained")
def test_both_forms_give_the_same_vectors_to_the_bit(kind):
    scheme = fitted_and_trained(kind)
    before = scheme(ORDER).detach()
    trained = copy.deepcopy(scheme)
    scheme.pack()
    assert scheme.packed
    assert scheme.config["packed"] is True
    assert not list(scheme.parameters())
    assert torch.equal(scheme(ORDER), before)
    for number in (0, 5, VOCAB - 1):  # alone, and in other shapes
        assert torch.equal(scheme(ORDER[number]), trained(ORDER[number]))
        # A matrix product of one row is rounded in another order than that of many, on CPUs with AVX-512.
        torch.testing.assert_close(scheme(ORDER[number]), before[number], rtol=1e-6, atol=1e-6)
    assert torch.equal(scheme(ORDER.view(7, 100)), before.view(7, 100, DIM))
    assert torch.equal(scheme(ORDER.int()), before)
    scheme.pack()  # a second time changes nothing
    assert torch.equal(scheme(ORDER), before)
    scheme.unpack()
    assert torch.equal(scheme(ORDER), before)
    assert {name: own.shape for name, own in scheme.named_parameters()} == {
        name: own.shape for name, own in trained.named_parameters()
    }
    scheme(ORDER).sum().backward()
    assert all(own.grad.abs().sum() > 0 for own in scheme.parameters())
    scheme.pack()
    assert torch.equal(scheme(ORDER), before)


@kinds
def test_the_bytes_are_those_of_the_packed_form(kind):
    scheme = make(kind)
    promised = scheme.bytes_by_part()
    scheme.pack()
    assert scheme.bytes_by_part() == promised
    stored = sum(own.numel() * own.element_size() for own in scheme.state_dict().values())
    assert stored == scheme.num_bytes - promised.get("id map", 0)


@kinds
@pytest.mark.filterwarnings("ignore:.*unexplained")
def test_the_packed_form_is_saved_and_loaded(kind, tmp_path):
    scheme = fitted_and_trained(kind)
    scheme.pack()
    save_scheme(scheme, tmp_path)
    again = load_scheme(tmp_path)
    assert again.packed
    assert torch.equal(again(ORDER), scheme(ORDER))
    assert (tmp_path / "model.safetensors").stat().st_size < scheme.num_bytes + 1000


@kinds
@pytest.mark.filterwarnings("ignore")  # the exporter's own, and a poor fit
def test_onnx_agrees_with_the_packed_form(kind, tmp_path):
    scheme = fitted_and_trained(kind)
    scheme.pack()
    assert_onnx_agrees(scheme, tmp_path / "scheme.onnx", [[3], ORDER.tolist(), [VOCAB - 1, 0]])


@kinds
def test_a_packed_scheme_refuses_ids_that_it_does_not_have(kind):
    scheme = make(kind, packed=True)
    for unknown in (VOCAB, -1, 2**63 - 1):
        with pytest.raises(IndexError, match=f"id {unknown} has no row"):
            scheme(torch.tensor([0, unknown]))
    with pytest.raises(TypeError, match="int32 or int64"):
        scheme(torch.tensor([1.5]))


@kinds
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_packed_scheme_answers_in_the_type_it_was_turned_into(kind, dtype):
    scheme = make(kind)
    scheme.pack()
    vectors, stored = scheme(ORDER), {name: own.clone() for name, own in scheme.state_dict().items()}
    others = scheme.to(dtype)(ORDER)
    assert others.dtype == dtype
    torch.testing.assert_close(others.float(), vectors, atol=0.0005, rtol=0.02)
    assert all(torch.equal(own, stored[name]) for name, own in scheme.state_dict().items())
    assert torch.equal(scheme.float()(ORDER), vectors)


@kinds
def test_a_packed_scheme_can_be_compiled(kind):
    scheme = make(kind)
    scheme.pack()
    compiled = torch.compile(scheme, backend="aot_eager")
    assert torch.equal(compiled(ORDER), scheme(ORDER))


@kinds
@pytest.mark.filterwarnings("ignore:.*unexplained")
def test_a_packed_scheme_can_be_fitted_again(kind):
    scheme, other = make(kind), make(kind)
    scheme.pack()
    for one in (scheme, other):
        weights = {"metric": torch.eye(DIM), "weights": torch.ones(VOCAB)}
        one.fit_directly(ORDER, table(), **weights)
    assert torch.equal(scheme(ORDER), other(ORDER))


@kinds
def test_no_memory_is_taken_on_the_meta_device(kind):
    with torch.device("meta"):
        imagined = make(kind)
    assert all(own.is_meta for own in [*imagined.parameters(), *imagined.buffers()])
    assert imagined.bytes_by_part() == make(kind).bytes_by_part()
