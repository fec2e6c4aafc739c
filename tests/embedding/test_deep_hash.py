import json
import subprocess
import sys

import pytest
import torch

from tableless import DeepHashEmbedding, SideFeatures, load_scheme, save_scheme
from tableless.embedding.budget import BudgetTooSmall
from tests.embedding.onnx_agreement import assert_onnx_agrees

SOME_IDS = [[5, -3, 2**62, 8, 0, 2**63 - 1, -(2**63)], list(range(50)), [7]]


def test_forward_is_the_decoder_of_the_encoder():
    scheme, ids = DeepHashEmbedding(8, width=16, num_hashes=32).eval(), torch.arange(10)
    assert torch.equal(scheme(ids), scheme.decoder(scheme.encoder(ids)))


@pytest.mark.parametrize("encoding", ["identity", "binary", "random-fourier"])
def test_other_encodings_can_take_the_place_of_the_dense_hash(encoding):
    scheme = DeepHashEmbedding.from_budget("1/2", embedding_dim=8, vocab_size=500, encoding=encoding, num_hashes=32)
    assert scheme(torch.arange(500)).shape == (500, 8)
    assert not scheme.open_vocabulary
    with pytest.raises(IndexError, match="id 500 has no row"):
        scheme(torch.tensor([500]))
    assert type(scheme)(**json.loads(json.dumps(scheme.config))).num_parameters == scheme.num_parameters


def test_an_encoding_that_needs_the_vocabulary_says_so():
    with pytest.raises(ValueError, match="give vocab_size"):
        DeepHashEmbedding(8, width=4, encoding="binary")
    with pytest.raises(ValueError, match="it must be one of dense-hash"):
        DeepHashEmbedding(8, width=4, encoding="one-hot")


def test_the_size_does_not_depend_on_the_vocabulary():
    small, large = (
        DeepHashEmbedding.from_budget(50_000, embedding_dim=8, vocab_size=size).num_parameters for size in (100, 10**9)
    )
    assert small == large


def test_it_learns_arbitrary_targets_for_ids_over_all_of_int64():
    ids = torch.randint(-(2**62), 2**62, (300,), generator=torch.Generator().manual_seed(0))
    targets = torch.randn(300, 4, generator=torch.Generator().manual_seed(1))
    scheme = DeepHashEmbedding(4, width=64, depth=2, num_hashes=128)
    optimizer = torch.optim.Adam(scheme.parameters(), lr=3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        loss = (scheme(ids) - targets).square().mean()
        loss.backward()
        optimizer.step()
    assert loss < 0.05, "a network that can't memorise 300 ids is not a substitute for a table"


def test_repeating_an_id_in_the_batch_does_not_change_its_vector_in_eval_mode():
    scheme = DeepHashEmbedding(8, width=16, num_hashes=32).eval()
    torch.testing.assert_close(scheme(torch.tensor([5] * 30 + [6]))[-1], scheme(torch.tensor([6]))[0])


@pytest.mark.parametrize("arguments", [{"num_experts": 3}, {"distribution": "gaussian"}, {"architecture": "densenet"}])
@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_onnx_agrees_for_every_kind_of_network(arguments, tmp_path):
    scheme = DeepHashEmbedding(8, width=16, depth=2, num_hashes=32, initial_std=1.0, **arguments)
    scheme(torch.arange(100))
    assert_onnx_agrees(scheme.eval(), tmp_path / "scheme.onnx", SOME_IDS)


@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_onnx_agrees_with_side_features_inside(tmp_path):
    side = SideFeatures.from_matrix(torch.tensor([5, -3, 2**62, 8]), torch.rand(4, 3))
    scheme = DeepHashEmbedding(8, width=16, depth=2, num_hashes=32, initial_std=1.0, side_features=side)
    assert_onnx_agrees(scheme.eval(), tmp_path / "scheme.onnx", SOME_IDS)


def test_memory_does_not_grow_with_the_number_of_ids_streamed():
    code = (
        "import resource, torch, tableless\n"
        "torch.set_num_threads(1)\n"
        "scheme = tableless.DeepHashEmbedding(16, width=32, num_hashes=256).eval()\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "def stream(batches):\n"
        "    with torch.no_grad():\n"
        "        for start in range(0, batches * 4096, 4096):\n"
        "            scheme(torch.arange(start, start + 4096))\n"
        "stream(5); early = peak(); stream(100)\n"
        "print(peak() - early)"
    )
    grown = int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
    assert grown < 4_000, "kilobytes; the codes of 400,000 ids would take 400,000"


def test_side_features_are_saved_with_the_scheme(tmp_path):
    side = SideFeatures.from_tags(["alien", "amélie"], [["horror", "space"], ["comedy"]])
    scheme = DeepHashEmbedding(8, width=16, num_hashes=32, side_features=side).eval()
    save_scheme(scheme, tmp_path)
    again = load_scheme(tmp_path)
    assert isinstance(again, DeepHashEmbedding)
    assert again.side_features.tags == ["comedy", "horror", "space"]
    ids = torch.cat([side.ids, torch.tensor([1])])
    assert torch.equal(again(ids), scheme(ids))
    again.side_features.add(["aliens"], [["space"]])
    assert len(again.side_features.ids) == 3


@pytest.mark.parametrize(
    ("budget", "num_hashes"), [("2400B", 8), ("4000B", 16), ("8000B", 32), ("16000B", 64), ("1000 parameters", 64)]
)
def test_a_small_budget_in_bytes_buys_fewer_hash_functions(budget, num_hashes):
    scheme = DeepHashEmbedding.from_budget(budget, embedding_dim=32, vocab_size=500)
    assert scheme.num_hashes == num_hashes
    assert scheme(torch.tensor(SOME_IDS[0])).unique(dim=0).shape == (7, 32)
    assert DeepHashEmbedding.from_budget(budget, embedding_dim=32, vocab_size=500, num_hashes=24).num_hashes == 24


@pytest.mark.parametrize("embedding_dim", [4, 32, 512])
def test_every_budget_above_the_smallest_is_possible(embedding_dim):
    """The number of hash functions is chosen first, and must not take what the last layer needs."""
    with pytest.raises(BudgetTooSmall) as refused:
        DeepHashEmbedding.from_budget("1B", embedding_dim=embedding_dim, vocab_size=1)
    smallest = refused.value.smallest
    for budget in range(smallest, smallest + 16_000, 487):
        scheme = DeepHashEmbedding.from_budget(f"{budget}B", embedding_dim=embedding_dim, vocab_size=1)
        assert scheme.num_bytes <= budget
