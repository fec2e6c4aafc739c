"""Schemes whose numbers have few bits: what the form that is trained and the form that is stored have in common."""

import copy
import json

import pytest
import torch

from tableless import SCHEMES, DeepHashEmbedding, EmbeddingBag, SideFeatures, distil, load_scheme, save_scheme
from tableless.embedding.inference.int8 import Int8Network
from tableless.embedding.inference.network import FloatNetwork
from tableless.files.scheme_directory import build_scheme, describe_scheme

ROWS, DIM = 500, 12
NETWORK = {"width": 24, "depth": 2, "num_hashes": 16}
IDS = torch.arange(0, ROWS, 3)

KINDS = {
    "dhe": lambda bits: DeepHashEmbedding(DIM, **NETWORK, normalization="none", weight_bits=bits),
    "dhe, batch norm": lambda bits: DeepHashEmbedding(DIM, **NETWORK, weight_bits=bits),
    "dhe, experts": lambda bits: DeepHashEmbedding(DIM, **NETWORK, num_experts=3, weight_bits=bits, seed=5),
    "dhe, densenet": lambda bits: DeepHashEmbedding(DIM, **NETWORK, architecture="densenet", weight_bits=bits),
    "dhe, residual, relu": lambda bits: DeepHashEmbedding(
        DIM, **NETWORK, architecture="residual", activation="relu", weight_bits=bits
    ),
    "dhe, side features": lambda bits: DeepHashEmbedding(
        DIM, **NETWORK, side_features=SideFeatures.from_matrix(IDS[:50], torch.rand(50, 3)), weight_bits=bits
    ),
    "head-and-tail": lambda bits: SCHEMES["head-and-tail"](
        DIM, num_frequent=20, network={**NETWORK, "weight_bits": bits}, row_bits=bits
    ),
    "low-rank": lambda bits: SCHEMES["low-rank"](DIM, vocab_size=ROWS, rank=9, weight_bits=bits),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_width = pytest.mark.parametrize("bits", [32, 16, 8, 6, 5, 4, 2])


def trained(kind, bits):
    """Some steps away from its start, batch norm statistics and all."""
    scheme = KINDS[kind](bits)
    optimizer = torch.optim.Adam(scheme.parameters(), lr=1e-2)
    targets = torch.randn(ROWS, DIM, generator=torch.Generator().manual_seed(1))
    for _ in range(5):
        optimizer.zero_grad()
        (scheme(torch.arange(ROWS)) - targets).square().mean().backward()
        optimizer.step()
    return scheme.eval()


def packed(scheme):
    copied = copy.deepcopy(scheme)
    copied.pack()
    return copied


@every_kind
@every_width
def test_both_forms_give_the_same_vectors_to_the_bit(kind, bits):
    scheme = trained(kind, bits)
    before = scheme(IDS).detach()
    scheme.pack()
    assert torch.equal(scheme(IDS), before)
    scheme.unpack()
    assert torch.equal(scheme(IDS), before)
    scheme.pack()
    assert torch.equal(scheme(IDS), before)


@every_kind
@every_width
def test_a_config_builds_the_form_it_describes(kind, bits, tmp_path):
    scheme = trained(kind, bits)
    for form in (scheme, packed(scheme)):
        description = json.loads(json.dumps(describe_scheme(form)))
        again = build_scheme(description)
        if again.state_dict().keys() != form.state_dict().keys():
            raise AssertionError(again.state_dict().keys() ^ form.state_dict().keys())
        again.load_state_dict(form.state_dict())
        assert torch.equal(again.eval()(IDS), scheme(IDS))
        assert again.config == form.config
    assert packed(scheme).config["packed"]


@every_kind
@every_width
def test_sizes_are_those_of_what_is_stored_in_both_forms(kind, bits):
    scheme = trained(kind, bits)
    stored = packed(scheme)
    in_tensors = sum(tensor.numel() * tensor.element_size() for tensor in stored.state_dict().values())
    beside = scheme.bytes_by_part().get("id map", 0)
    assert scheme.num_bytes == stored.num_bytes == in_tensors + beside
    assert scheme.bytes_by_part() == stored.bytes_by_part()
    assert stored.num_parameters == scheme.num_parameters == sum(own.numel() for own in scheme.parameters())


@pytest.mark.parametrize("kind", ["dhe", "dhe, experts", "head-and-tail", "low-rank"])
def test_fewer_bits_take_fewer_bytes(kind):
    sizes = [trained(kind, bits).num_bytes for bits in (32, 16, 8, 6, 5, 4, 2)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)


@every_kind
@pytest.mark.parametrize("bits", [16, 8, 5])
def test_what_is_saved_is_packed_and_the_scheme_itself_can_be_trained_on(kind, bits, tmp_path):
    scheme = trained(kind, bits)
    save_scheme(scheme, tmp_path)
    assert not scheme.packed
    assert sum(own.numel() for own in scheme.parameters()) == scheme.num_parameters
    loaded = load_scheme(tmp_path)
    assert loaded.packed
    assert torch.equal(loaded(IDS), scheme(IDS))
    file, beside = (tmp_path / "model.safetensors").stat().st_size, scheme.bytes_by_part().get("id map", 0)
    assert 0 < file - (scheme.num_bytes - beside) < 4_000  # the names of the tensors
    loaded.unpack()
    optimizer = torch.optim.SGD(loaded.parameters(), lr=1.0)
    loaded.train()(IDS).square().sum().backward()
    optimizer.step()
    assert not torch.isclose(loaded.eval()(IDS), scheme(IDS)).all(-1).any()


@every_kind
def test_rounding_in_training_reaches_every_parameter(kind):
    scheme = KINDS[kind](4)
    weights = torch.randn(ROWS, DIM, generator=torch.Generator().manual_seed(0))
    (scheme(torch.arange(ROWS)) * weights).sum().backward()
    for name, parameter in scheme.named_parameters():
        if not name.endswith("linear.bias"):  # before batch norm it has no effect
            assert parameter.grad.abs().max() > 0, name


@every_kind
@pytest.mark.parametrize("form", ["trained", "packed"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_vectors_in_another_type_are_nearly_the_same(kind, form, dtype):
    scheme = trained(kind, 8)
    scheme = packed(scheme) if form == "packed" else scheme
    with torch.no_grad():
        vectors = scheme(IDS)
        others = scheme.to(dtype)(IDS)
    assert others.dtype == dtype
    error = (others.double() - vectors.double()).square().mean().sqrt() / vectors.double().square().mean().sqrt()
    assert error < (0.03 if dtype == torch.bfloat16 else 0.01 if dtype == torch.float16 else 1e-5)


@every_kind
@pytest.mark.parametrize("form", ["trained", "packed"])
def test_autocast_works(kind, form):
    scheme = trained(kind, 8)
    scheme = packed(scheme) if form == "packed" else scheme.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        vectors = scheme(IDS)
    assert vectors.shape == (len(IDS), DIM)
    assert vectors.isfinite().all()
    if form == "trained":
        vectors.float().square().sum().backward()
        assert all(own.grad is None or own.grad.dtype == torch.float32 for own in scheme.parameters())


@every_kind
@every_width
@pytest.mark.parametrize("form", ["trained", "packed"])
def test_what_is_served_and_exported_gives_the_same_vectors(kind, bits, form):
    scheme = trained(kind, bits)
    scheme = packed(scheme) if form == "packed" else scheme
    with torch.no_grad():
        wanted = scheme(IDS)
        torch.testing.assert_close(scheme.served("fp32", IDS).vectors(IDS), wanted, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(scheme.exported()(IDS), wanted, atol=1e-5, rtol=1e-4)


def bytes_in(thing, seen=None):
    """The bytes of all memory that an object's tensors have, each counted once."""
    seen = {} if seen is None else seen
    if isinstance(thing, torch.Tensor):
        seen[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
    elif isinstance(thing, (list, tuple)):
        for part in thing:
            bytes_in(part, seen)
    elif isinstance(thing, torch.nn.Module):
        bytes_in([*thing.parameters(), *thing.buffers()], seen)
    elif hasattr(thing, "__dict__"):
        bytes_in(list(vars(thing).values()), seen)
    return sum(seen.values())


def test_a_packed_network_is_served_from_the_memory_it_is_stored_in():
    sizes = {"width": 100, "depth": 3, "num_hashes": 32, "num_experts": 4}
    schemes = {bits: DeepHashEmbedding(DIM, **sizes, weight_bits=bits).eval() for bits in (32, 16, 8, 4)}
    for scheme in schemes.values():
        scheme.pack()
    networks = {bits: FloatNetwork(scheme.encoder, scheme.decoder, scheme.router) for bits, scheme in schemes.items()}
    for network in networks.values():
        network(torch.arange(600))  # what it allocates when it is first asked is counted as well
    used = {bits: bytes_in([schemes[bits], networks[bits]]) for bits in schemes}
    one_layer = 4 * 112 * 112  # float32, of whole vectors of the CPU
    activations = 4 * 256 * (2 * 112 + 32)
    assert used[8] < schemes[8].num_bytes + one_layer + activations + 20_000  # biases and scales of whole vectors
    assert used[4] < used[8] < used[16] < used[32] / 2


@pytest.mark.parametrize("bits", [8, 6, 4])
@pytest.mark.parametrize("arguments", [{}, {"num_experts": 3}, {"num_hashes": 128}, {"activation": "relu"}], ids=str)
def test_networks_of_bytes_take_the_stored_integers(bits, arguments):
    scheme = DeepHashEmbedding(DIM, **{**NETWORK, "width": 40, "initial_std": 1.0, **arguments}, weight_bits=bits)
    with torch.no_grad():
        scheme(torch.arange(ROWS))  # so that batch norm has statistics
        scheme.eval().pack()
        ids = torch.arange(1000, 1500)
        network = Int8Network(scheme.encoder, scheme.decoder, scheme.router, ids)
        cosine = torch.cosine_similarity(network(ids), scheme(ids), dim=-1)
    assert network.rounds
    assert cosine.min() > 0.99
    for layer, linear in zip(network.layers[0][1:], list(scheme.decoder.hidden)[1:], strict=True):
        own = linear.linear.weight.as_integers().reshape(-1, *linear.linear.weight.shape[-2:])[0]
        assert torch.equal(layer.weight[: own.shape[1], : own.shape[0]], own.T)


def test_a_config_of_an_older_version_is_one_of_32_bits():
    for kind in KINDS:
        scheme = trained(kind, 32)
        description = describe_scheme(scheme)
        older = copy.deepcopy(description)
        for name in ("weight_bits", "row_bits", "packed"):
            older["arguments"].pop(name, None)
            older["arguments"].get("network", {}).pop(name, None)
        again = build_scheme(json.loads(json.dumps(older)))
        again.load_state_dict(scheme.state_dict())
        assert torch.equal(again.eval()(IDS), scheme(IDS))
        assert again.config == scheme.config


@pytest.mark.parametrize("kind", ["dhe", "head-and-tail", "low-rank"])
def test_a_packed_scheme_can_be_fitted_again(kind):
    scheme = packed(trained(kind, 8))
    table = torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(0)) @ torch.randn(2, DIM)
    before = scheme(IDS)
    distil(table, scheme, visits=2, progress=False) if kind == "low-rank" else _fit_a_little(table, scheme)
    assert not scheme.packed
    assert not torch.isclose(scheme(IDS), before).all()


def _fit_a_little(table, scheme):
    with pytest.warns(UserWarning, match="unexplained"):
        distil(table, scheme, visits=2, progress=False)


@every_kind
def test_a_bag_over_a_packed_scheme_answers(kind):
    scheme = trained(kind, 8)
    bags = [EmbeddingBag(form, padding_id=0) for form in (scheme, packed(scheme))]
    ids = torch.tensor([[3, 9, 0], [0, 0, 0]])
    assert torch.equal(bags[0](ids), bags[1](ids))
    assert torch.equal(bags[1](ids[:, :0]), torch.zeros(2, DIM))


def test_a_budget_in_bytes_buys_weights_of_few_bits_and_one_in_parameters_floats():
    sizes = {"embedding_dim": 32, "vocab_size": 10_000}
    for name in ("dhe", "head-and-tail", "low-rank"):
        small, floats = (SCHEMES[name].from_budget(budget, **sizes) for budget in ("1/16", "1/16 parameters"))
        assert small.num_bytes <= 10_000 * 32 * 4 / 16 < small.num_bytes * 1.2
        assert small.num_parameters > 2 * floats.num_parameters
        assert floats.num_bytes > 4 * floats.num_parameters
        given = SCHEMES[name].from_budget("1/16", **sizes, weight_bits=32)
        assert given.num_bytes <= 10_000 * 32 * 4 / 16
        assert given.num_parameters < small.num_parameters / 2


def test_experts_are_counted_by_weights_and_not_by_bytes():
    sizes = {"embedding_dim": 32, "vocab_size": 1}
    assert DeepHashEmbedding.from_budget("880000 parameters", **sizes).num_experts == 8
    assert DeepHashEmbedding.from_budget("880000B", **sizes, weight_bits=32).num_experts == 2
    assert DeepHashEmbedding.from_budget("880000B", **sizes, weight_bits=8).num_experts == 8
    assert DeepHashEmbedding.from_budget("880000B", **sizes, weight_bits=4).num_experts == 16


@pytest.mark.parametrize("bits", [1, 9, 24])
def test_other_numbers_of_bits_are_refused(bits):
    with pytest.raises(ValueError, match=f"weight_bits is {bits}"):
        DeepHashEmbedding(DIM, **NETWORK, weight_bits=bits)
    with pytest.raises(ValueError, match=f"weight_bits is {bits}"):
        DeepHashEmbedding.from_budget("8B/id", embedding_dim=DIM, vocab_size=ROWS, weight_bits=bits)
    with pytest.raises(ValueError, match=f"weight_bits is {bits}"):
        SCHEMES["low-rank"](DIM, vocab_size=ROWS, rank=2, weight_bits=bits)
    with pytest.raises(ValueError, match=f"row_bits is {bits}"):
        SCHEMES["head-and-tail"](DIM, num_frequent=2, network=NETWORK, row_bits=bits)
