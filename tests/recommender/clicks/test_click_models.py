"""Backbones by hand, vectors of columns, and the division of the budget."""

import numpy as np
import pytest
import torch

from tableless import JointEmbedding, to_ids
from tableless.data.clicks.columns import MISSING, parse_columns
from tableless.data.clicks.reading import ClickConfig, read_clicks
from tableless.data.clicks.split import split_clicks
from tableless.recommender.clicks import sizing
from tableless.recommender.clicks.backbones import CLICK_BACKBONES, FM, find_click_backbone
from tableless.recommender.clicks.click_measures import auc_with_error, measure_clicks
from tableless.recommender.clicks.click_model import build_click_model, describe_click_model
from tableless.recommender.clicks.click_training import set_new_values
from tableless.recommender.clicks.column_vectors import BucketVectors, KnownValues, NumberVectors, mean_of_lists
from tableless.recommender.clicks.sizing import ClickModelConfig, full_tables, sized_model
from tests.data.clicks.tiny_clicks import COLUMNS, tiny_clicks

ASKED = {
    "user": torch.tensor([-11, 7919 * 3 - 11, 5, MISSING]),
    "item": to_ids(["item 3", "item 9", "no such item", ""]),
    "device": to_ids(["tv", "phone", "radio", ""]),
    "tags": torch.stack([to_ids(["t1", "t2"]), to_ids(["t1", ""]), to_ids(["", ""]), to_ids(["new", "t0"])]),
    "price": torch.tensor([2.5, torch.nan, -1e9, 4.0]),
}


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    path = tmp_path_factory.mktemp("clicks") / "clicks.parquet"
    tiny_clicks().write_parquet(path)
    return split_clicks(read_clicks(ClickConfig(str(path), parse_columns(COLUMNS), label="clicked")))


@pytest.fixture(autouse=True)
def few_values(monkeypatch):
    monkeypatch.setattr(sizing, "FEW_VALUES", 8)  # so that users and items count as many


def test_a_factorisation_machine_adds_up_all_pairs():
    vectors, fm = torch.randn(5, 4, 3), FM(4, 3, is_number=[False] * 4, seed=3)
    pairs = sum(vectors[:, first] @ vectors[:, second].T for first in range(4) for second in range(first)).diagonal()
    torch.testing.assert_close(fm(vectors), pairs + (vectors * fm.linear).sum((1, 2)) + fm.bias)


@pytest.mark.parametrize("name", CLICK_BACKBONES)
@pytest.mark.parametrize("is_number", [[False, False, False], [False, True, True]])
def test_every_backbone_learns_from_every_column(name, is_number):
    vectors = torch.randn(6, 3, 4, requires_grad=True)
    backbone = find_click_backbone(name)(3, 4, is_number=is_number, seed=1)
    logits = backbone(vectors)
    assert logits.shape == (6,)
    logits.square().sum().backward()
    assert (vectors.grad.abs().sum((0, 2)) > 0).all()
    assert all(weight.grad is not None for weight in backbone.parameters())
    again = find_click_backbone(name)(3, 4, is_number=is_number, seed=1)
    assert torch.equal(again(vectors), logits)
    for row in range(6):
        torch.testing.assert_close(backbone(vectors[row : row + 1])[0], logits[row])


def test_an_unknown_backbone_is_named_with_the_nearest():
    with pytest.raises(ValueError, match=r"no backbone of a click model is called 'deepmf'.*did you mean 'deepfm'"):
        ClickModelConfig("deepmf")


def test_known_values_have_rows_of_their_own_and_new_ones_hardly_ever():
    ids = to_ids([f"value {number}" for number in range(500)])
    known = KnownValues(500)
    assert sorted(known.build(ids).tolist()) == list(range(1, 501))
    assert torch.equal(known(ids).sort().values, torch.arange(1, 501))
    new = to_ids([f"other {number}" for number in range(20_000)])
    assert 0.001 < float((known(new) > 0).float().mean()) < 0.008, "one in 256"
    assert known.num_bytes < 500 * 1.5


def test_a_list_is_the_mean_of_what_is_in_it():
    ids = torch.tensor([[4, 6, MISSING], [MISSING, MISSING, MISSING], [4, MISSING, MISSING]])
    vectors = torch.randn(3, 3, 2)
    found = mean_of_lists(vectors, ids)
    torch.testing.assert_close(found[0], (vectors[0, 0] + vectors[0, 1]) / 2)
    assert found[1].tolist() == [0, 0]
    assert torch.equal(found[2], vectors[2, 0])


def test_numbers_enter_as_they_are_or_by_buckets():
    linear = NumberVectors(3, mean=10.0, std=2.0)
    found = linear(torch.tensor([10.0, 12.0, torch.nan]))
    torch.testing.assert_close(found[1] - found[0], linear.slope)
    assert torch.equal(found[2], linear.missing)
    buckets = BucketVectors(3, num_edges=2)
    buckets.edges.copy_(torch.tensor([1.0, 5.0]))
    found = buckets(torch.tensor([torch.nan, -9.0, 1.0, 4.9, 5.0, 1e9]))
    assert torch.equal(found, buckets.table[torch.tensor([0, 1, 2, 2, 3, 3])])


@pytest.mark.parametrize("scheme", ["dhe", "coded", "low-rank", "hashing-trick", "joint"])
def test_the_budget_counts_small_tables_and_everything_that_is_stored(split, scheme):
    config = ClickModelConfig("fm", scheme, "3000B", 8)
    model = sized_model(split, config, seed=0)
    sizes = model.sizes(100)
    small = sum(len(split.known[name].ids) + 1 for name in ("device", "tags")) * 8 * 4
    assert small + 3 * 8 * 4 < sizes["bytes"] <= 3000
    assert sizes["bytes_by_part"]["price"] == {"numbers": 3 * 8 * 4 + 2 * 4}
    assert model.of_column("device").scheme.is_the_table
    parts = sizes["bytes_by_part"]
    assert parts["device"]["checks"] == len(split.known["device"].ids)
    assert ("joint" in parts) == (scheme == "joint")
    if scheme == "low-rank":
        assert parts["user"]["checks"] == len(split.known["user"].ids)


def test_a_column_may_have_a_scheme_and_bytes_of_its_own(split):
    config = ClickModelConfig("fm", "joint", "4000B", 8, {"item": "coded:600B", "device": "dhe:500B"})
    model = sized_model(split, config, seed=0)
    assert type(model.of_column("item").scheme).__name__ == "CodedEmbedding"
    assert 400 < model.of_column("item").num_bytes <= 600
    assert type(model.of_column("device").scheme).__name__ == "DeepHashEmbedding"
    assert model.joint_names == ["user"]
    assert sum(own.num_bytes for own in model.value_columns().values()) + model.joint.num_bytes <= 4000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"budget": "100B"},
            r"a budget of 100B \(100 B\) is too small: numbers, and the tables of columns with at most 8 values",
        ),
        ({"budget": "700B"}, "are left for column 'user', and dhe takes .* at least; give a larger budget"),
        ({"budget": "1/4 parameters"}, "counts parameters; that of a click model is memory"),
        ({"column_schemes": {"nobody": "dhe"}}, "no column of ids is called 'nobody'; known are user, item"),
        ({"column_schemes": {"user": "dhee"}}, "no scheme is called 'dhee'"),
        ({"scheme": "jiont"}, "no scheme is called 'jiont'.*did you mean 'joint'"),
    ],
)
def test_what_cannot_be_built_is_refused_with_a_way_out(split, arguments, message):
    with pytest.raises(ValueError, match=message):
        sized_model(split, ClickModelConfig(**{"scheme": "dhe", "embedding_dim": 8, **arguments}), seed=0)


@pytest.mark.parametrize("scheme", ["full", "dhe", "coded", "low-rank", "joint"])
@pytest.mark.parametrize("backbone", CLICK_BACKBONES)
def test_a_description_and_weights_build_the_same_model_again(split, scheme, backbone):
    model = sized_model(split, ClickModelConfig(backbone, scheme, "1/2", 8), seed=5)
    stored = model.stored()
    again = build_click_model(describe_click_model(stored))
    again.load_state_dict(stored.state_dict())
    logits = stored.eval()(ASKED)
    assert torch.equal(again.eval()(ASKED), logits)
    assert logits.isfinite().all()
    for row in range(4):
        alone = again({name: values[row : row + 1] for name, values in ASKED.items()})
        torch.testing.assert_close(alone[0], logits[row])


def test_new_values_have_the_mean_row_of_a_table(split):
    model = full_tables(split, ClickModelConfig("fm", "full", embedding_dim=8), seed=0)
    set_new_values(model)
    users = model.of_column("user")
    new = to_ids([f"new {number}" for number in range(50)])
    expected = users.scheme.table[1:].mean(0)
    assert sum(torch.equal(vector, expected) for vector in users(new)) >= 48


def test_tables_of_different_columns_start_with_different_rows(split):
    model = full_tables(split, ClickModelConfig("fm", "full", embedding_dim=8), seed=0)
    assert not torch.equal(model.of_column("user").scheme.table[:3], model.of_column("item").scheme.table[:3])


def test_the_auc_is_that_of_all_pairs_and_its_error_that_of_a_bootstrap():
    random = np.random.default_rng(0)
    clicks = random.random(400) < 0.3
    scores = np.round(random.normal(size=400) + clicks, 1)  # with ties
    pairs = [float(own > other) + float(own == other) / 2 for own in scores[clicks] for other in scores[~clicks]]
    auc, error = auc_with_error(scores, clicks)
    assert auc == pytest.approx(np.mean(pairs))
    drawn = [random.integers(0, 400, 400) for _ in range(500)]
    assert error == pytest.approx(np.std([auc_with_error(scores[own], clicks[own])[0] for own in drawn]), rel=0.15)


def test_the_log_loss_is_by_hand():
    logits, labels = torch.tensor([0.0, 2.0, -1.0]), np.float32([1, 1, 0])
    chances = torch.sigmoid(logits).numpy()
    losses = -np.log([chances[0], chances[1], 1 - chances[2]])
    measured = measure_clicks(logits, labels)
    assert measured["log_loss"] == pytest.approx(losses.mean())
    assert measured["log_loss_se"] == pytest.approx(losses.std() / 3**0.5)


def test_shared_hash_functions_tell_features_apart_and_spend_bytes_on_integers():
    joint = JointEmbedding.from_budget("20KB", features={"user": 3000, "type": 500}, embedding_dim=8)
    assert 18_000 < joint.num_bytes <= 20_000
    assert joint.weight_bits == 8
    ids = torch.arange(6)
    vectors = joint.eval()({"user": ids, "type": ids})
    assert not torch.isclose(vectors["user"], vectors["type"]).any(-1).all()
    alone = JointEmbedding(**{**joint.config, "features": {"type": None}})
    alone.load_state_dict(joint.state_dict())
    torch.testing.assert_close(alone.eval()({"type": ids})["type"], vectors["type"])
    with pytest.raises(ValueError, match="need shared hash functions; give own_hashes=False"):
        JointEmbedding({"user": None}, width=8, weight_bits=8)
