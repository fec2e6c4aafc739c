"""Weights of 8 bits: trained in float32, rounded by parts at the end."""

import copy

import pytest
import torch

from tableless import SCHEMES, DeepHashEmbedding, distil, to_ids
from tableless.embedding.finishing import has_weights_to_round, in_float32, round_by_parts
from tableless.embedding.tables import CodedEmbedding

DIM = 8
IDS = to_ids([f"user {number * 7919}" for number in range(700)])
NETWORK = {"width": 40, "depth": 2, "num_hashes": 16}
KINDS = {
    "plain": {"normalization": "none"},
    "batch norm": {},
    "experts": {"normalization": "none", "num_experts": 3},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def rows(seed=0):
    return torch.randn(len(IDS), DIM, generator=torch.Generator().manual_seed(seed))


def fitted(kind, seed=0, bits=8):
    """A network in float32 that has learned something, not yet rounded."""
    scheme = DeepHashEmbedding(DIM, **NETWORK, **KINDS[kind], weight_bits=bits, seed=seed)
    optimizer = torch.optim.Adam(scheme.parameters(), lr=1e-2)
    with in_float32(scheme):
        for _ in range(40):
            optimizer.zero_grad()
            (scheme(IDS) - rows(seed)).square().mean().backward()
            optimizer.step()
    return scheme.eval()


def error(scheme, wanted, metric):
    with torch.no_grad():
        return float(((scheme(IDS) - wanted) @ metric).square().mean())


@every_kind
@pytest.mark.parametrize("seed", [0, 5])
def test_less_is_lost_than_by_rounding_at_once(kind, seed):
    scheme, metric = fitted(kind, seed), torch.diag(torch.linspace(0.1, 2, DIM))
    at_once = copy.deepcopy(scheme)
    with in_float32(scheme), torch.no_grad():
        wanted = scheme(IDS)
    lost = round_by_parts(scheme, IDS, metric=metric, seed=seed)
    assert error(scheme, wanted, metric) < 0.6 * error(at_once, wanted, metric)
    variance = float(((wanted - wanted.mean(0)) @ metric).square().mean())
    assert lost == pytest.approx(error(scheme, wanted, metric) / variance, rel=1e-3)


@every_kind
def test_what_was_rounded_stays_as_it_is_when_it_is_packed(kind):
    scheme = fitted(kind)
    round_by_parts(scheme, IDS, metric=torch.eye(DIM))
    with torch.no_grad():
        with in_float32(scheme):
            floats = scheme(IDS)
        rounded = scheme(IDS)
        scheme.pack()
        assert torch.equal(floats, rounded)
        assert torch.equal(scheme(IDS), rounded)


def test_rounding_twice_and_rounding_zeros_changes_nothing():
    scheme = fitted("experts")
    with torch.no_grad():
        scheme.output_layer[0][1] = 0  # all rows of an expert
    round_by_parts(scheme, IDS, metric=torch.eye(DIM))
    before = copy.deepcopy(scheme.state_dict())
    weights = [name for name in before if name.endswith("values")]
    round_by_parts(scheme, IDS, metric=torch.eye(DIM))
    assert all(torch.equal(scheme.state_dict()[name], before[name]) for name in weights)
    assert scheme(IDS).isfinite().all()


def test_the_same_seed_gives_the_same_weights_in_batches_too(monkeypatch):
    monkeypatch.setattr("tableless.embedding.finishing.default_batch", lambda rows, experts: 300)
    schemes = [fitted("plain") for _ in range(3)]
    for scheme, seed in zip(schemes, (1, 1, 2), strict=True):
        round_by_parts(scheme, IDS, metric=torch.eye(DIM), seed=seed)
    first, second, other = (scheme(IDS) for scheme in schemes)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_weights_count():
    metric, some = torch.eye(DIM), torch.arange(len(IDS)) < 50
    errors = {}
    for name, weights in {"all": None, "some": some.float() + 1e-3}.items():
        scheme = fitted("plain")
        with in_float32(scheme), torch.no_grad():
            wanted = scheme(IDS)
        round_by_parts(scheme, IDS, metric=metric, weights=weights)
        errors[name] = float((scheme(IDS) - wanted)[some].detach().square().mean())
    assert errors["some"] < errors["all"]


@pytest.mark.parametrize("bits", [32, 16, 6, 4])
def test_other_numbers_of_bits_are_not_rounded_by_parts(bits):
    scheme = DeepHashEmbedding(DIM, **NETWORK, weight_bits=bits)
    before = scheme.eval()(IDS)
    assert not has_weights_to_round(scheme)
    with in_float32(scheme) as rounds_at_end:
        assert not rounds_at_end
        assert torch.equal(scheme(IDS), before)


def test_weights_are_rounded_again_after_an_error():
    scheme = fitted("plain")
    rounded = scheme(IDS)

    def is_stopped():
        with in_float32(scheme):
            assert not torch.equal(scheme(IDS), rounded)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        is_stopped()
    assert torch.equal(scheme(IDS), rounded)


def test_no_ids_are_no_error():
    scheme = fitted("plain")
    assert round_by_parts(scheme, IDS[:0], metric=torch.eye(DIM)) == 0


@pytest.mark.filterwarnings("ignore:.*unexplained")
def test_distil_rounds_at_the_end_unless_its_caller_does():
    steps = []
    scheme = DeepHashEmbedding(DIM, **NETWORK, normalization="none", weight_bits=8)
    fit = distil(rows(), scheme, ids=IDS, visits=30, progress=False, on_step=lambda *step: steps.append(step))
    assert fit.steps == 30
    assert [step[0] for step in steps] == [*range(1, 31), *range(1, 91)]
    with in_float32(scheme), torch.no_grad():
        floats = scheme(IDS)
    assert torch.equal(scheme(IDS), floats)
    again = DeepHashEmbedding(DIM, **NETWORK, normalization="none", weight_bits=8)
    with in_float32(again):
        distil(rows(), again, ids=IDS, visits=30, progress=False)
        assert not torch.equal(again(IDS), floats)
    plain = DeepHashEmbedding(DIM, **NETWORK, normalization="none")
    distil(rows(), plain, ids=IDS, visits=30, progress=False)
    with in_float32(again):
        assert torch.equal(again(IDS), plain(IDS))  # up to there it is the training of float32


@pytest.mark.filterwarnings("ignore:.*unexplained")
def test_networks_inside_other_schemes_are_rounded_by_what_they_compute():
    network = {**NETWORK, "normalization": "none", "weight_bits": 8}
    both = SCHEMES["head-and-tail"](DIM, num_frequent=30, network=network, row_bits=8)
    both.head.assign(IDS[:30])
    coded = CodedEmbedding(DIM, vocab_size=len(IDS), num_bits=24, check_bits=8, network=network)
    for scheme in (both, coded):
        distil(rows(), scheme, ids=IDS, visits=20, progress=False)
        part, is_learned = scheme.learned_part(IDS)
        assert part is scheme.tail
        assert int(is_learned.sum()) == (670 if scheme is both else 700)
        with in_float32(scheme), torch.no_grad():
            floats = part(IDS)
        assert torch.equal(part(IDS), floats)
    assert not CodedEmbedding(DIM, vocab_size=9, num_bits=24).learned_part(IDS)[1].any()
