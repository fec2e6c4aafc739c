import math

import pytest
import torch

from tableless import LSH, DeepHashEmbedding, SideFeatures, to_ids


def test_a_known_id_has_its_row_and_a_flag_and_an_unknown_one_zeros():
    side = SideFeatures.from_matrix([10, -20], [[1.0, 2.0], [3.0, 4.0]])
    assert side(torch.tensor([[-20, 10], [7, -20]])).tolist() == [[[3, 4, 1], [1, 2, 1]], [[0, 0, 0], [3, 4, 1]]]


def test_without_any_rows_every_id_is_unknown():
    assert SideFeatures(2)(torch.tensor([1, 2])).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_rows_can_be_added_and_replaced_and_the_last_one_counts():
    side = SideFeatures.from_matrix([1, 2], [[1.0], [2.0]])
    side.add([2, 3, 3], [[20.0], [3.0], [30.0]])
    assert side(torch.tensor([1, 2, 3])).tolist() == [[1, 1], [20, 1], [30, 1]]


def test_tags_become_columns_in_alphabetical_order():
    side = SideFeatures.from_tags(["a", "b"], [["x", "z"], ["y", "x"]])
    assert side.tags == ["x", "y", "z"]
    assert side(to_ids(["b", "a"])).tolist() == [[1, 1, 0, 1], [1, 0, 1, 1]]


def test_an_unknown_tag_is_named_with_its_row():
    side = SideFeatures.from_tags(["a"], [["x"]])
    with pytest.raises(ValueError, match="tag 'q' of row 1 is not one of the 1 tags"):
        side.add(["b", "c"], [["x"], ["q"]])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_feature_that_is_no_finite_number_is_refused(value):
    with pytest.raises(ValueError, match="row 1 of the features"):
        SideFeatures.from_matrix([1, 2], [[1.0], [value]])


def test_a_mismatch_of_ids_and_rows_is_refused():
    with pytest.raises(ValueError, match="3 ids but 2 rows"):
        SideFeatures(1).add([1, 2, 3], [[1.0], [2.0]])
    with pytest.raises(ValueError, match=r"expected \[ids, 2\]"):
        SideFeatures(2).add([1], [[1.0]])


def test_rows_are_part_of_the_state_dict_whatever_their_number():
    side = SideFeatures.from_matrix([1, 2], [[1.0], [2.0]])
    empty = SideFeatures(**side.config)
    empty.load_state_dict(side.state_dict())
    assert torch.equal(empty(torch.tensor([1, 2, 3])), side(torch.tensor([1, 2, 3])))


def test_a_new_id_with_known_features_gets_a_useful_vector():
    """Targets are decided by genre: a film that was never trained on, but whose genre is known, must land near."""
    genres = torch.nn.functional.one_hot(torch.arange(400) % 4).float()
    side = SideFeatures.from_matrix(range(400), genres)
    targets = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    scheme = DeepHashEmbedding(4, width=32, depth=2, num_hashes=64, side_features=side)
    optimizer = torch.optim.Adam(scheme.parameters(), lr=1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        (scheme(torch.arange(400)) - targets[torch.arange(400) % 4]).square().mean().backward()
        optimizer.step()
    scheme.eval()
    side.add(range(1000, 1040), torch.nn.functional.one_hot(torch.arange(40) % 4).float())
    known = (scheme(torch.arange(1000, 1040)) - targets[torch.arange(40) % 4]).square().mean()
    unknown = (scheme(torch.arange(2000, 2040)) - targets[torch.arange(40) % 4]).square().mean()
    assert known < 0.3 * unknown


def test_near_vectors_get_near_bits():
    lsh = LSH(4096)
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(50, generator=generator)
    for wanted in (0.1, 0.5, 1.0, math.pi / 2, 2.5):
        b = torch.randn(50, generator=generator)
        b = b - (a @ b) / (a @ a) * a
        b = a / a.norm() * math.cos(wanted) + b / b.norm() * math.sin(wanted)
        differing = float((lsh(a) != lsh(b)).float().mean())
        assert abs(differing - wanted / math.pi) < 0.03, "bits differ in proportion to the angle"


def test_lsh_of_tags_is_lsh_of_their_multi_hot_vector_for_any_tag():
    lsh = LSH(2048)
    bits = lsh.of_tags([["a", "b", "c"], ["a", "b", "d"], ["x", "y", "z"], []])
    assert bits.shape == (4, 2048)
    angle = math.acos(2 / 3)
    assert abs(float((bits[0] != bits[1]).float().mean()) - angle / math.pi) < 0.04
    assert abs(float((bits[0] != bits[2]).float().mean()) - 0.5) < 0.04


def test_lsh_depends_on_its_seed_alone():
    vector = torch.randn(20)
    assert torch.equal(LSH(64, seed=1)(vector), LSH(64, seed=1)(vector))
    assert not torch.equal(LSH(64, seed=1)(vector), LSH(64, seed=2)(vector))


def test_many_tags_are_reduced_to_bits_without_a_list_of_them():
    side = SideFeatures.from_tags(["a", "b"], [["x"], ["y"]], num_bits=16)
    side.add(["c"], [["a tag never seen before"]])
    assert side(to_ids(["c"])).shape == (1, 17)
    wide = SideFeatures.from_matrix([1], torch.rand(1, 300), num_bits=8)
    assert set(wide(torch.tensor([1])).flatten().tolist()) <= {0.0, 1.0}
