import copy
import threading
from typing import get_args

import numpy as np
import pytest
import torch

from tableless import SCHEMES, DeepHashEmbedding, SideFeatures
from tableless.embedding import EmbeddingScheme, normal, seeded
from tableless.embedding.decoders import Architecture
from tableless.embedding.head_and_tail import HeadAndTail
from tableless.embedding.layers import Activation, BatchNorm
from tableless.embedding.scheme import Served
from tableless.kernels import id_loops as kernels
from tableless.serving import FastEmbedding

IDS = torch.randint(-(2**63), 2**63 - 1, (700,), generator=torch.Generator().manual_seed(0))
BATCHES = {
    "random": IDS,
    "repeated": IDS[torch.arange(700) % 9],
    "one": IDS[:1],
    "scalar": IDS[0],
    "empty": IDS[:0],
    "two axes": IDS.view(7, 100),
    "negative": -IDS.abs(),
}


def trained(**arguments):
    """A network whose batch norm statistics and weights are not those it started with."""
    scheme = DeepHashEmbedding(8, **{"width": 24, "num_hashes": 32, "depth": 3, "initial_std": 1.0, **arguments})
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for module in scheme.modules():
            if isinstance(module, BatchNorm):
                for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                    tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return scheme.eval()


def assert_same(fast, scheme, ids):
    with torch.no_grad():
        torch.testing.assert_close(fast(ids), scheme(ids), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("num_experts", [1, 3])
def test_every_batch_gets_the_vectors_of_the_scheme(batch, num_experts):
    scheme = trained(num_experts=num_experts)
    assert_same(FastEmbedding(scheme), scheme, BATCHES[batch])


@pytest.mark.parametrize("architecture", get_args(Architecture))
@pytest.mark.parametrize("activation", get_args(Activation))
@pytest.mark.parametrize("arguments", [{}, {"num_experts": 3}, {"normalization": "none"}], ids=str)
def test_every_architecture_and_activation_agrees(architecture, activation, arguments):
    scheme = trained(architecture=architecture, activation=activation, **arguments)
    assert_same(FastEmbedding(scheme), scheme, IDS)


@pytest.mark.parametrize("arguments", [{"distribution": "gaussian"}, {"depth": 0}, {"num_buckets": 7}], ids=str)
def test_other_codes_agree(arguments):
    scheme = trained(**arguments)
    assert_same(FastEmbedding(scheme), scheme, IDS)


@pytest.mark.parametrize("num_experts", [1, 3])
def test_side_features_agree(num_experts):
    side = SideFeatures.from_matrix(IDS[:300], torch.randn(300, 4))
    scheme = trained(side_features=side, num_experts=num_experts)
    assert_same(FastEmbedding(scheme), scheme, IDS)


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("hot_ids", [0, 5, range(20)], ids=str)
def test_every_scheme_can_be_served(name, hot_ids):
    scheme = SCHEMES[name].from_budget("1/1", embedding_dim=8, vocab_size=500).eval()
    fast = FastEmbedding(scheme, hot_ids=hot_ids)
    for batch in (torch.arange(500), torch.tensor([3, 3, 400]), torch.tensor([], dtype=torch.int64)):
        assert_same(fast, scheme, batch)


def test_a_head_without_rows_is_served_by_its_tail():
    scheme = HeadAndTail.from_budget("1/1", embedding_dim=8, vocab_size=500, head_share=0.0).eval()
    assert scheme.num_frequent == 0
    assert_same(FastEmbedding(scheme), scheme, IDS)


class Rounded(EmbeddingScheme):
    """A table whose rows become bytes when it is served."""

    open_vocabulary = False

    def __init__(self, embedding_dim, *, vocab_size):
        super().__init__()
        self.embedding_dim, self.vocab_size = embedding_dim, vocab_size
        self.table = normal(vocab_size, embedding_dim, std=10.0, generator=seeded(0))

    def forward(self, ids):
        return self.table[ids]

    @classmethod
    def from_budget(cls, budget, *, embedding_dim, vocab_size, seed=0):
        return cls(embedding_dim, vocab_size=vocab_size)

    def served(self, precision, sample_ids):
        table = self.table.detach().round().to(torch.int8)
        return Served(lambda ids: table[ids].float(), "int8")


def test_a_new_scheme_says_itself_how_it_is_served():
    scheme = Rounded(8, vocab_size=100)
    fast = FastEmbedding(scheme, hot_ids=[3, 5])
    ids = torch.tensor([[5, 7], [7, 99]])
    assert fast.precision == "int8"
    assert torch.equal(fast(ids), scheme(ids).round())
    with torch.no_grad():
        scheme.table.mul_(2)
    assert torch.equal(fast(ids), scheme(ids).round())


@pytest.mark.parametrize("number_of_threads", [1, 2])
def test_the_number_of_threads_does_not_change_an_answer(number_of_threads):
    before = torch.get_num_threads()
    scheme = trained(num_experts=3)
    expected = FastEmbedding(scheme)(IDS)
    try:
        torch.set_num_threads(number_of_threads)
        torch.testing.assert_close(FastEmbedding(scheme)(IDS), expected, atol=1e-6, rtol=1e-6)
        assert torch.get_num_threads() == number_of_threads
        new = []
        thread = threading.Thread(target=lambda: new.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert new == [number_of_threads]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("hot_ids", [0, 50])
def test_callers_in_several_threads_do_not_disturb_each_other(hot_ids):
    scheme = trained()
    fast = FastEmbedding(scheme, hot_ids=hot_ids)
    with torch.no_grad():
        expected = scheme(IDS)
    wrong = []

    def ask(offset):
        for step in range(60):
            where = (torch.arange(40) * 7 + offset + step) % len(IDS)
            if not torch.allclose(fast(IDS[where]), expected[where], atol=1e-5):
                wrong.append((offset, step))

    threads = [threading.Thread(target=ask, args=(offset,)) for offset in (0, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_changed_model_is_noticed_hot_vectors_and_all():
    scheme = trained()
    fast = FastEmbedding(scheme, hot_ids=IDS[:50])
    before = fast(IDS)
    with torch.no_grad():
        scheme.decoder.output.weight.mul_(2)
    assert_same(fast, scheme, IDS)
    assert not torch.allclose(fast(IDS), before)
    for assign in (False, True):
        scheme.load_state_dict(trained(seed=5 + assign).state_dict(), assign=assign)
        assert_same(fast, scheme, IDS)


def test_a_change_that_torch_does_not_record_needs_a_word():
    scheme = trained()
    fast = FastEmbedding(scheme, hot_ids=IDS[:50])
    scheme.decoder.output.weight.data.mul_(2)
    fast.renew()
    assert_same(fast, scheme, IDS)


def test_a_scheme_that_cannot_be_watched_is_refused():
    with torch.inference_mode():
        scheme = trained()
    with pytest.raises(ValueError, match="build it outside"):
        FastEmbedding(scheme)


@pytest.mark.parametrize("hot_ids", [0, 50, IDS[:50]])
def test_a_copy_has_weights_of_its_own(hot_ids):
    fast = FastEmbedding(trained(), hot_ids=hot_ids)
    other = copy.deepcopy(torch.nn.Sequential(fast))[0]
    with torch.no_grad():
        other.scheme.decoder.output.weight.mul_(2)
    assert (other.hot_ids is None) == (fast.hot_ids is None)
    assert_same(fast, fast.scheme, IDS)
    assert_same(other, other.scheme, IDS)
    assert not torch.equal(fast(IDS), other(IDS))


def test_a_negative_number_of_hot_ids_is_refused():
    with pytest.raises(ValueError, match="hot_ids is -3"):
        FastEmbedding(trained(), hot_ids=-3)


def test_given_hot_ids_are_not_computed_again():
    scheme = trained()
    fast = FastEmbedding(scheme, hot_ids=IDS[:50])
    fast(IDS[:100])
    assert (fast.hot_ids.hits, fast.hot_ids.asked) == (50, 100)
    assert fast.hot_ids.ids.tolist() == sorted(IDS[:50].tolist())


def test_hot_ids_are_learned_from_the_traffic_and_follow_it(monkeypatch):
    monkeypatch.setattr("tableless.serving.fast_embedding._FIRST_CHOICE", 1000)
    monkeypatch.setattr("tableless.serving.fast_embedding._BETWEEN_CHOICES", 1000)
    fast = FastEmbedding(trained(), hot_ids=10)
    for popular in (IDS[:10], IDS[10:20]):
        for turn in range(30):
            fast(torch.cat([popular, IDS[30 + 10 * turn : 40 + 10 * turn]] * 10))
        assert fast.hot_ids.ids.tolist() == sorted(popular.tolist())
    assert fast.hot_ids.hits > 0


def test_it_stays_in_evaluation_mode_and_needs_no_gradient():
    fast = FastEmbedding(DeepHashEmbedding(8, width=8))
    fast.train()
    assert not fast.scheme.training
    assert not fast(IDS[:3]).requires_grad


@pytest.fixture
def _int8_on_any_cpu(monkeypatch):
    """Without the instructions it is slow, not wrong."""
    monkeypatch.setattr("tableless.embedding.inference.int8.is_supported", lambda: True)


@pytest.mark.usefixtures("_int8_on_any_cpu")
@pytest.mark.parametrize("architecture", get_args(Architecture))
@pytest.mark.parametrize(
    "arguments", [{}, {"num_hashes": 256}, {"activation": "relu"}, {"num_experts": 3}, {"depth": 0}], ids=str
)
def test_int8_is_close(architecture, arguments):
    scheme = trained(architecture=architecture, **{"width": 100, "num_hashes": 64, **arguments})
    fast = FastEmbedding(scheme, precision="int8", sample_ids=IDS)
    with torch.no_grad():
        cosine = torch.cosine_similarity(fast(IDS), scheme(IDS), dim=-1)
    assert cosine.min() > 0.99
    assert cosine.mean() > 0.999


@pytest.mark.usefixtures("_int8_on_any_cpu")
@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_reports_int8_only_where_something_was_rounded(name):
    budget = "1/1" if name == "full" else "1/2"
    scheme = SCHEMES[name].from_budget(budget, embedding_dim=8, vocab_size=3000, seed=2).eval()
    assert_precision_is_true(scheme, torch.arange(0, 3000, 7))


@pytest.mark.usefixtures("_int8_on_any_cpu")
@pytest.mark.parametrize("architecture", get_args(Architecture))
@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("arguments", [{}, {"num_hashes": 256}, {"num_hashes": 256, "activation": "relu"}], ids=str)
def test_a_network_reports_int8_only_where_a_layer_was_rounded(architecture, depth, arguments):
    assert_precision_is_true(trained(architecture=architecture, depth=depth, **arguments), IDS)


def assert_precision_is_true(scheme, ids):
    rounded = FastEmbedding(scheme, precision="int8", sample_ids=ids)
    exact = FastEmbedding(scheme)(ids)
    error = (rounded(ids) - exact).abs().max() / exact.std()
    assert error < 1e-4 or error > 1e-3, "float32 or bytes, and nothing in between"
    assert rounded.precision == ("fp32" if error < 1e-4 else "int8")
    assert copy.deepcopy(rounded).precision == rounded.precision


@pytest.mark.usefixtures("_int8_on_any_cpu")
def test_int8_codes_are_the_codes_rounded():
    scheme = trained(num_hashes=256)
    network = FastEmbedding(scheme, precision="int8")._served.vectors
    row_scale = np.empty(256, np.float32)
    codes = network._codes_as_bytes(IDS[:256], row_scale)
    assert (
        codes.float() * torch.from_numpy(row_scale).unsqueeze(-1) - scheme.encoder(IDS[:256])
    ).abs().max() < 0.5 / 127 + 1e-5


def test_int8_without_the_instructions_says_so_and_computes_in_fp32(monkeypatch):
    monkeypatch.setattr("tableless.embedding.inference.int8.is_supported", lambda: False)
    scheme = trained()
    with pytest.warns(UserWarning, match="VNNI"):
        fast = FastEmbedding(scheme, precision="int8")
    assert fast.precision == "fp32"
    assert_same(fast, scheme, IDS)


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="fp32, int8"):
        FastEmbedding(trained(), precision="bf16")


@pytest.mark.parametrize("shift", [0, 16, 32, 40, 44, 48, 53])
def test_ids_that_differ_in_a_few_bits_are_spread_over_the_index(shift):
    slots = {int(kernels.slot_of(np.int64(number << shift), 2047)) for number in range(1000)}
    assert len(slots) > 600  # a random choice of 2,048 would be about 790; without folding it was one for 44 and more
