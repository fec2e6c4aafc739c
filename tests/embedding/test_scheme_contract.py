"""What every entry of SCHEMES must do; a new scheme is tested by being in the dictionary."""

import copy
import functools
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tableless import SCHEMES, JointEmbedding, SideFeatures, load_scheme, save_scheme, to_ids
from tableless.embedding.budget import resolve_budget
from tableless.embedding.hashing import HashFamily
from tableless.embedding.id_rows import IdRows
from tableless.embedding.scheme import bytes_of_id_map
from tests.embedding.onnx_agreement import assert_onnx_agrees

VOCAB, DIM = 2_000, 16
EXTREMES = [2**31, 2**63 - 1, -1, -(2**63), VOCAB, 10**12]

schemes = pytest.mark.parametrize("name", SCHEMES)
OF_CODES = ("coded", "quantized", "product-quantized", "cce")
"""Schemes that mostly store codes, which are no parameters. A budget in parameters counts as four bytes for each."""


CODED_WITH_NETWORK = {"check_bits": 6, "network_share": 0.3}


def make(name, budget="1/2", **arguments):
    """An instance of the scheme; small enough to be quick, with a budget every scheme can use."""
    budget = "1/1" if name == "full" else budget
    defaults = {"embedding_dim": DIM, "vocab_size": VOCAB, "seed": 0}
    return SCHEMES[name].from_budget(budget, **{**defaults, **arguments})


made_once = functools.cache(make)
"""For what reads a scheme and changes nothing in it: to find the size for a budget takes most of a test's time."""


def copied(name, **arguments):
    """A new instance of the scheme, made once and copied: for what trains it or changes its type."""
    return copy.deepcopy(made_once(name, **arguments))


@functools.cache
def trained_once(name):
    """A few steps away from its start, batch norm statistics and all."""
    scheme = copied(name)
    optimizer = torch.optim.Adam(scheme.parameters(), lr=1e-2)
    targets = torch.randn(VOCAB, DIM, generator=torch.Generator().manual_seed(1))
    for _ in range(5):
        optimizer.zero_grad()
        (scheme(torch.arange(VOCAB)) - targets).square().mean().backward()
        optimizer.step()
    return scheme.eval()


@schemes
@pytest.mark.parametrize("training", [True, False])
def test_any_leading_shape_gives_one_vector_per_id(name, training):
    scheme = copied(name).train(training)
    for shape in [(), (0,), (1,), (7,), (2, 3), (2, 0), (2, 3, 4)]:
        vectors = scheme(torch.ones(shape, dtype=torch.int64))
        assert vectors.shape == (*shape, DIM)
        assert vectors.dtype == torch.float32
        assert vectors.isfinite().all(), shape


def of_every_kind(name):
    """Every scheme, `dhe` and `head-and-tail` with batch norm and with experts too, `coded` with a network, and a joint
    embedding.
    """
    if name == "joint":
        joint = JointEmbedding({"user": None}, DIM, width=16, depth=2, num_hashes=32)
        return joint, lambda ids: joint({"user": ids})["user"]
    if name == "coded with a network":
        scheme = copied("coded", **CODED_WITH_NETWORK)
        return scheme, scheme
    name, _, number_of_experts = name.partition(" with batch norm, experts: ")
    options = {"normalization": "batch", "num_experts": int(number_of_experts)} if number_of_experts else {}
    scheme = copied(name, **options)
    return scheme, scheme


with_batch_norm = [f"{name} with batch norm, experts: {n}" for name in ("dhe", "head-and-tail") for n in (1, 3)]
every_kind = pytest.mark.parametrize("kind", [*SCHEMES, "joint", "coded with a network", *with_batch_norm])


@every_kind
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_vectors_and_gradients_have_the_type_of_the_weights(kind, dtype):
    scheme, embed = of_every_kind(kind)
    scheme.to(dtype)
    ids = torch.arange(VOCAB).view(2, -1)
    embed(ids).square().sum().backward()
    assert all(p.grad.dtype == dtype and p.grad.isfinite().all() for p in scheme.parameters() if p.grad is not None)
    assert any(parameter.grad is not None for parameter in scheme.parameters())
    for training in (True, False):
        scheme.train(training)
        vectors = embed(ids)
        assert vectors.shape == (*ids.shape, DIM)
        assert vectors.dtype == dtype
        assert vectors.isfinite().all()


@every_kind
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_vectors_in_another_type_are_nearly_the_same(kind, dtype):
    scheme, embed = of_every_kind(kind)
    ids = torch.arange(VOCAB)
    with torch.no_grad():
        embed(ids)  # a training batch, so that batch norm has statistics
        scheme.eval()
        vectors = embed(ids)
        scheme.to(dtype)
        others = embed(ids)
    error = (others.double() - vectors.double()).square().mean().sqrt() / vectors.double().square().mean().sqrt()
    # Weights of few bits are rounded from float16 values here, and some fall to the other side of a step.
    assert error < (0.03 if dtype == torch.bfloat16 else 0.008 if dtype == torch.float16 else 1e-5)


@every_kind
@pytest.mark.parametrize("training", [True, False])
def test_autocast_works(kind, training):
    scheme, embed = of_every_kind(kind)
    scheme.train(training)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        vectors = embed(torch.arange(VOCAB))
    assert vectors.shape == (VOCAB, DIM)
    assert vectors.isfinite().all()
    vectors.float().square().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in scheme.parameters() if p.grad is not None)
    assert any(parameter.grad is not None for parameter in scheme.parameters())


@every_kind
def test_ids_that_are_no_integers_are_refused(kind):
    _, embed = of_every_kind(kind)
    for wrong in (1.7, True, 1j, torch.tensor(1, dtype=torch.uint8)):
        ids = torch.as_tensor(wrong).reshape(1)
        with pytest.raises(TypeError, match=rf"ids are of type {ids.dtype}; .* int32 or int64"):
            embed(ids)


@every_kind
def test_ids_of_32_bits_have_the_vectors_of_64_bits(kind):
    scheme, embed = of_every_kind(kind)
    scheme.eval()
    ids = torch.tensor([0, 1, 77, VOCAB - 1])
    assert torch.equal(embed(ids.int()), embed(ids))


@schemes
def test_the_forms_that_are_served_and_exported_give_the_same_vectors(name):
    scheme, ids = trained_once(name), torch.arange(0, VOCAB, 3)
    with torch.no_grad():
        served = scheme.served("fp32", ids)
        torch.testing.assert_close(served.vectors(ids), scheme(ids), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(scheme.exported()(ids), scheme(ids), atol=1e-5, rtol=1e-4)
    assert served.precision == "fp32"


@schemes
def test_a_closed_scheme_says_how_many_ids_it_knows(name):
    scheme = made_once(name)
    assert scheme.num_known_ids == (None if scheme.open_vocabulary else VOCAB)


@schemes
def test_a_training_step_on_a_single_id_works(name):
    scheme = copied(name)
    scheme(torch.tensor([3])).sum().backward()
    assert any(parameter.grad is not None for parameter in scheme.parameters())


@schemes
@settings(max_examples=20, deadline=None)
@given(ids=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=40))
def test_an_id_has_the_same_vector_wherever_it_sits(name, ids):
    scheme = trained_once(name)
    with torch.no_grad():
        together = scheme(torch.tensor(ids))
        alone = torch.stack([scheme(torch.tensor(value)) for value in ids])
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=1e-5)


@schemes
def test_another_seed_gives_other_vectors_and_the_same_seed_the_same(name):
    ids = torch.arange(50)
    first, again, other = (make(name, seed=seed).eval()(ids) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.isclose(first, other).all(-1).any()


@schemes
def test_construction_does_not_touch_or_depend_on_the_global_random_state(name):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = make(name).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert all(torch.equal(value, first[key]) for key, value in make(name).state_dict().items())


@schemes
def test_gradient_reaches_every_parameter(name):
    scheme = copied(name)
    weights = torch.randn(VOCAB, DIM, generator=torch.Generator().manual_seed(0))
    (scheme(torch.arange(VOCAB)) * weights).sum().backward()
    # A bias before batch norm has no effect (the paper's layers have one all the same), and so no gradient.
    idle = {key for key in dict(scheme.named_parameters()) if key.endswith("linear.bias")}
    for key, parameter in scheme.named_parameters():
        if key not in idle:
            assert parameter.grad is not None, key
            assert parameter.grad.abs().max() > 0, key


@schemes
def test_embeddings_start_at_the_scale_of_recommenders(name):
    vectors = copied(name)(torch.arange(VOCAB))
    assert 0.007 < vectors.std() < 0.013
    assert vectors.mean(0).abs().max() < 0.03, "no dimension may start with a bias that drowns the ids"
    assert vectors.min() < -0.02, "embeddings must be able to be negative"


def is_coded(name):
    """Are the rows codes, that is, numbers that are not trained?"""
    return "codes" in made_once(name).bytes_by_part()


@schemes
@pytest.mark.parametrize("budget", [VOCAB * DIM // 2, "1/2 parameters", "1/4 parameters", "10000 parameters"])
def test_a_budget_of_parameters_is_kept_and_nearly_used(name, budget):
    allowed = resolve_budget(budget, embedding_dim=DIM, vocab_size=VOCAB).amount
    if is_coded(name):  # codes are no parameters, so that each parameter counts as four bytes
        assert make(name, budget).config == make(name, f"{4 * allowed}B").config
        return
    if name == "full":
        allowed, budget = VOCAB * DIM, "1/1 parameters"
    scheme = make(name, budget)
    if name in OF_CODES:
        assert scheme.config == make(name, f"{4 * allowed}B").config
        return
    counted = sum(parameter.numel() for parameter in scheme.parameters() if parameter.requires_grad)
    assert scheme.num_parameters == counted <= allowed
    unused = allowed - counted
    assert unused < VOCAB + DIM, "one more rank of a low-rank table is the largest step that there is"
    if unused and scheme.is_computed:  # the step is a unit of width in every layer
        assert unused < allowed / 10
    elif unused:  # a row or a rank; steps of one scheme are about equal
        step = counted - make(name, counted - 1).num_parameters
        assert unused < 2 * step


@schemes
@pytest.mark.parametrize("budget", ["1/2", "1/4", "20 B/id"])
def test_a_budget_of_bytes_is_kept_and_nearly_used(name, budget):
    allowed = resolve_budget(budget, embedding_dim=DIM, vocab_size=VOCAB).amount
    if name == "full":  # one size, for which 1/1 is enough
        assert make(name, "1/1").bytes_by_part()["weights"] == VOCAB * DIM * 4
        return
    used = make(name, budget).num_bytes
    assert used <= allowed
    if used > 0.9 * made_once(name, "9/1").num_bytes:  # as large as it gets: a byte for each number of a row, say
        return
    # The steps of a scheme may be small (a row) or large (a rank, a bit for each id). Nothing that it makes of a larger
    # budget would have fitted into this one, unless it is hardly larger (a row more, and a narrower network; the same
    # codes, and larger codebooks).
    for more in (1.01, 1.05, 1.2, 1.5):
        larger = make(name, f"{int(more * allowed)}B").num_bytes
        assert larger <= 1.05 * used or larger > allowed
    twice = make(name, f"{2 * allowed}B").num_bytes
    assert twice > used or made_once(name, "20/1").num_bytes == used, "or it has a largest"
    assert used > allowed / 2, "no scheme has steps so large that half is left over"
    if made_once(name).is_computed:  # its step is a unit of width in every layer
        assert used > allowed * 0.9


@schemes
@pytest.mark.parametrize("unit", ["parameters", "bytes"])
def test_a_budget_too_small_says_what_the_smallest_is(name, unit):
    if name in OF_CODES and unit == "parameters":
        with pytest.raises(ValueError, match="a budget of 40 bytes is too small"):
            make(name, "10 parameters")
        return

    def counted(budget):
        scheme = SCHEMES[name].from_budget(budget, embedding_dim=DIM, vocab_size=VOCAB)
        if name == "full" and unit == "bytes":  # the table itself: 1/1 is meant to be enough
            return scheme.bytes_by_part()["weights"]
        return scheme.num_bytes if unit == "bytes" else scheme.num_parameters

    if unit == "parameters" and is_coded(name):
        with pytest.raises(ValueError, match="a budget of 40 bytes is too small"):
            counted("10 parameters")
        return
    with pytest.raises(ValueError, match=rf"a budget of 10 {unit} is too small; .* (\d+)$") as error:
        counted(f"10 {unit}")
    smallest = int(str(error.value).rsplit(maxsplit=1)[1])
    assert counted(f"{smallest} {unit}") == smallest
    with pytest.raises(ValueError, match=f"a budget of {smallest - 1} {unit} is too small"):
        counted(f"{smallest - 1} {unit}")


def bytes_in_file(directory):
    """What the tensors in the file of a saved scheme take, by the file's own header, which comes first."""
    content = (directory / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    total = sum(end - start for start, end in (own["data_offsets"] for own in header.values() if "data_offsets" in own))
    assert total == len(content) - 8 - length
    return total


@schemes
@pytest.mark.parametrize("seed", [0, 1])
def test_the_bytes_are_those_of_the_file_and_of_the_map_of_a_closed_scheme(name, seed, tmp_path):
    scheme = make(name, "1/3", seed=seed)
    parts = scheme.bytes_by_part()
    assert all(type(count) is int and count > 0 for count in parts.values())
    assert sum(parts.values()) == scheme.num_bytes
    beside = 0 if scheme.open_vocabulary else IdRows(VOCAB).num_bytes
    assert parts.get("id map", 0) >= beside
    save_scheme(scheme, tmp_path)
    assert bytes_in_file(tmp_path) == scheme.num_bytes - beside
    assert load_scheme(tmp_path).bytes_by_part() == parts


def test_the_map_that_counts_for_a_closed_scheme_finds_the_rows_of_raw_ids():
    """The bytes that are counted are those of a map that works."""
    raw = to_ids([f"user {number}" for number in range(VOCAB)])
    id_map = IdRows(VOCAB)
    assert sorted(id_map.build(raw).tolist()) == list(range(VOCAB))
    scheme = make("low-rank")
    assert scheme.bytes_by_part()["id map"] == id_map.num_bytes
    assert scheme(id_map(raw)).shape == (VOCAB, DIM)
    assert 0.3 * VOCAB < id_map.num_bytes < 0.5 * VOCAB
    assert bytes_of_id_map(2**32) == pytest.approx(2**32 * 0.3, rel=0.05), "more ids than one map can have"


@schemes
def test_training_does_not_change_the_bytes(name):
    assert trained_once(name).bytes_by_part() == made_once(name).bytes_by_part()


@schemes
def test_the_bytes_are_the_same_without_memory(name):
    with torch.device("meta"):
        imagined = make(name)
        assert imagined.bytes_by_part() == make(name).bytes_by_part()
    assert all(tensor.is_meta for tensor in imagined.state_dict().values())
    assert made_once(name).bytes_by_part() == imagined.bytes_by_part()


@pytest.mark.parametrize("name", ["dhe", "head-and-tail"])
def test_side_features_count_with_their_rows(name, tmp_path):
    side = SideFeatures.from_matrix(torch.arange(7, 107), torch.ones(100, 3))
    scheme = make(name, side_features=side)
    assert scheme.bytes_by_part()["side features"] == 100 * (8 + 3 * 4)
    save_scheme(scheme, tmp_path)
    assert bytes_in_file(tmp_path) == scheme.num_bytes


@schemes
@pytest.mark.parametrize("budget", ["a quarter", "1/0", "", "0", "-5", "1/100000000"])
def test_a_budget_that_makes_no_sense_is_refused(name, budget):
    with pytest.raises(ValueError, match="budget"):
        SCHEMES[name].from_budget(budget, embedding_dim=DIM, vocab_size=VOCAB)


@schemes
def test_config_is_plain_and_builds_the_same_scheme_again(name):
    scheme = trained_once(name)
    config = json.loads(json.dumps(scheme.config))
    assert config == scheme.config
    again = SCHEMES[name](**config)
    again.load_state_dict(scheme.state_dict())
    ids = torch.arange(VOCAB)
    assert torch.equal(again.eval()(ids), scheme(ids))


def test_saved_schemes_give_bit_equal_vectors_in_a_fresh_process(tmp_path):
    """All in one process: to start it takes far longer than to load a scheme."""
    for name in SCHEMES:
        save_scheme(trained_once(name), tmp_path / name)
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["config.json", "model.safetensors"]
    code = (
        "import sys, torch, numpy, tableless; torch.set_num_threads(1)\n"
        "for folder in sys.argv[1:]:\n"
        "    scheme = tableless.load_scheme(folder)\n"
        f"    numpy.save(folder + '/vectors.npy', scheme(torch.arange({VOCAB})).detach().numpy())"
    )
    subprocess.run([sys.executable, "-c", code, *(str(tmp_path / name) for name in SCHEMES)], check=True)
    for name in SCHEMES:
        expected = trained_once(name)(torch.arange(VOCAB)).detach().numpy()
        assert np.array_equal(np.load(tmp_path / name / "vectors.npy"), expected), name


@schemes
def test_the_encoding_version_is_written_and_another_one_refused(name, tmp_path):
    save_scheme(made_once(name), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["encoding_version"] == 1
    (tmp_path / "config.json").write_text(json.dumps({**config, "encoding_version": 2}))
    with pytest.raises(ValueError, match="version 2 of the encoding"):
        load_scheme(tmp_path)


@schemes
def test_hash_coefficients_are_buffers_that_are_saved_but_not_trained(name):
    scheme = made_once(name)
    saved = {key for key in scheme.state_dict() if key.endswith("coefficients")}
    used = {key for key, module in scheme.named_modules() if isinstance(module, HashFamily)}
    assert saved == {f"{key}.coefficients".lstrip(".") for key in used}
    has_hash = bool(saved) or "finder.key" in scheme.state_dict()  # `IdRows` has a hash of its own
    assert has_hash or not scheme.open_vocabulary, "without a hash there is no place for an id that is new"
    assert not any(key.endswith("coefficients") for key, _ in scheme.named_parameters())


@schemes
def test_open_schemes_answer_for_any_id_and_closed_ones_name_the_id_they_lack(name):
    scheme = copied(name).eval()
    assert scheme.open_vocabulary == SCHEMES[name].open_vocabulary
    for unknown in EXTREMES:
        if scheme.open_vocabulary:
            assert scheme(torch.tensor([unknown])).isfinite().all()
        else:
            with pytest.raises(IndexError, match=f"id {unknown} has no row"):
                scheme(torch.tensor([0, unknown, 1]))


@schemes
@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_onnx_agrees(name, tmp_path):
    scheme = trained_once(name)
    beyond = EXTREMES if scheme.open_vocabulary else [VOCAB - 1]
    assert_onnx_agrees(scheme, tmp_path / "scheme.onnx", [[3], list(range(300)), beyond])


@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_onnx_agrees_on_coded_rows_with_a_network(tmp_path):
    scheme = make("coded", **CODED_WITH_NETWORK, num_experts=2).eval()
    known = torch.arange(0, VOCAB, 7)
    rows = torch.randn(len(known), DIM, generator=torch.Generator().manual_seed(2))
    scheme.fit_directly(known, rows, metric=torch.eye(DIM), weights=torch.ones(len(known)))
    assert_onnx_agrees(scheme.exported(), tmp_path / "scheme.onnx", [[3], list(range(300)), EXTREMES])
