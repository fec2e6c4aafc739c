import pytest
import torch

from tableless import JointEmbedding


def small(features=("user", "item", "device"), **arguments):
    return JointEmbedding(dict.fromkeys(features), 8, width=16, depth=2, num_hashes=32, **arguments)


def test_every_feature_gets_vectors_of_its_own_shape():
    vectors = small()({"user": torch.arange(4), "item": torch.ones(2, 3, dtype=torch.int64), "device": torch.tensor(5)})
    assert {name: tuple(v.shape) for name, v in vectors.items()} == {"user": (4, 8), "item": (2, 3, 8), "device": (8,)}


def test_the_same_id_in_two_features_has_two_vectors():
    joint = small().eval()
    vectors = joint({"user": torch.arange(5), "item": torch.arange(5)})
    assert not torch.isclose(vectors["user"], vectors["item"]).any(-1).all()


def test_features_may_come_alone_and_in_any_order():
    joint = small().eval()
    together = joint({"item": torch.arange(5), "user": torch.arange(3)})
    torch.testing.assert_close(joint({"user": torch.arange(3)})["user"], together["user"])
    assert joint({}) == {}


def test_a_feature_s_codes_depend_on_its_name_and_not_on_the_others():
    alone, among = small(["item"]), small(["user", "item", "zebra"])
    among.decoder.load_state_dict(alone.decoder.state_dict())
    ids = torch.arange(5)
    torch.testing.assert_close(alone.eval()({"item": ids})["item"], among.eval()({"item": ids})["item"])


def test_one_budget_serves_all_features():
    features = {"user": 6000, "item": 4000, "device": None}
    joint = JointEmbedding.from_budget("1/4 parameters", features=features, embedding_dim=16)
    assert 38_000 < joint.num_parameters <= 40_000
    joint = JointEmbedding.from_budget(
        "1/4", features=features, embedding_dim=16, num_hashes=64, own_hashes=True, depth=4
    )
    assert 152_000 < joint.num_bytes <= 160_000
    assert joint.num_bytes == 4 * joint.num_parameters + buffers(joint)


def buffers(module):
    return sum(tensor.numel() * tensor.element_size() for tensor in module.buffers())


def test_config_builds_the_same_joint_embedding_again():
    joint = small(seed=3).eval()
    again = JointEmbedding(**joint.config)
    again.load_state_dict(joint.state_dict())
    ids = {"user": torch.arange(5)}
    assert torch.equal(again.eval()(ids)["user"], joint(ids)["user"])


def test_an_unknown_feature_is_named_with_the_known_ones():
    with pytest.raises(KeyError, match="no feature 'colour' here; there are device, item, user"):
        small()({"colour": torch.arange(3)})
    with pytest.raises(ValueError, match="at least one feature"):
        small([])
