"""Networks compute each distinct id of a batch once, in training too."""

import copy

import pytest
import torch

from tableless import PAPER_NETWORK, SCHEMES, DeepHashEmbedding, JointEmbedding
from tableless.embedding.id_batches import distinct_ids, with_distinct_ids

IDS = torch.tensor([[7, 3, 7], [3, 2**40, 7]])


def rows_that_the_network_gets(scheme, ids):
    seen = []
    network = next(module for name, module in scheme.named_modules() if name.endswith("decoder"))
    handle = network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].reshape(-1, network.code_dim)))
    scheme(ids)
    handle.remove()
    return sum(len(rows) for rows in seen)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", [name for name, scheme in SCHEMES.items() if scheme.is_computed])
def test_a_scheme_computes_repeated_ids_once(name, training):
    scheme = SCHEMES[name].from_budget("1/2", embedding_dim=8, vocab_size=1_000).train(training)
    ids = torch.tensor([999, 998, 999, 997, 998, 999]).repeat(50)  # rare ids: those of the tail
    assert rows_that_the_network_gets(scheme, ids) == 3
    assert torch.equal(scheme(ids)[:6], scheme(torch.tensor([999, 998, 997]))[[0, 1, 0, 2, 1, 0]])


def test_a_joint_embedding_computes_repeated_ids_of_a_feature_once():
    joint = JointEmbedding({"user": None, "item": None}, 8, width=16, depth=2, num_hashes=32)
    ids = {"user": torch.tensor([1, 1, 2]), "item": torch.tensor([[1, 5], [5, 5]])}
    assert rows_that_the_network_gets(joint, ids) == 4
    vectors = joint.eval()(ids)
    users, items = joint({"user": torch.tensor([1, 2])})["user"], joint({"item": torch.tensor([1, 5])})["item"]
    torch.testing.assert_close(vectors["user"], users[[0, 0, 1]])
    torch.testing.assert_close(vectors["item"], items[torch.tensor([[0, 1], [1, 1]])])


def test_batch_norm_sees_each_distinct_id_once():
    scheme = DeepHashEmbedding.from_budget(20_000, embedding_dim=8, vocab_size=1_000, **PAPER_NETWORK | {"depth": 2})
    other = copy.deepcopy(scheme)
    scheme(torch.tensor([5, 5, 5, 5, 6, 7]))
    other(torch.tensor([5, 6, 7]))
    for key, value in other.state_dict().items():
        assert torch.equal(scheme.state_dict()[key], value), key


def test_gradients_of_repeated_ids_are_added_up():
    scheme = DeepHashEmbedding(4, width=8, depth=1, num_hashes=16, normalization="none").double()
    weights = torch.arange(24.0, dtype=torch.float64).view(2, 3, 4)
    (scheme(IDS) * weights).sum().backward()
    together = [parameter.grad.clone() for parameter in scheme.parameters()]
    scheme.zero_grad()
    for id_, weight in zip(IDS.view(-1), weights.view(-1, 4), strict=True):
        (scheme(id_) * weight).sum().backward()
    for parameter, gradient in zip(scheme.parameters(), together, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_distinct_ids_come_with_the_place_of_each():
    distinct, numbers = distinct_ids(IDS)
    assert sorted(distinct.tolist()) == [3, 7, 2**40]
    assert torch.equal(distinct[numbers], IDS)
    transposed, places = distinct_ids(IDS.T)
    assert torch.equal(transposed[places], IDS.T)


@pytest.mark.parametrize("ids", [torch.tensor([9, 3, 5]), torch.tensor(4), torch.empty(0, 2, dtype=torch.int64)])
def test_ids_without_repeats_are_computed_as_they_are(ids):
    assert distinct_ids(ids)[0] is ids
    assert with_distinct_ids(lambda given: given, ids) is ids


def test_an_exported_program_holds_for_other_ids():
    scheme = DeepHashEmbedding(4, width=8, depth=1, num_hashes=16).eval()
    exported = torch.export.export(scheme, (torch.tensor([1, 1, 2]),)).module()
    assert torch.allclose(exported(torch.tensor([3, 4, 5])), scheme(torch.tensor([3, 4, 5])), atol=1e-7)
    assert scheme.to("meta")(torch.zeros(3, dtype=torch.int64, device="meta")).shape == (3, 4)
