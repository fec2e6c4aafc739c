"""Item features are kept by id. A closed scheme is asked by row, and the row of an item is not its id."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import tableless
from tableless import SCHEMES, SideFeatures
from tableless.data.config import DataConfig
from tableless.recommender.models import MLP
from tableless.recommender.runs import ModelConfig, build_model, train_and_measure
from tableless.recommender.scoring import model_scores
from tableless.recommender.training import TrainConfig
from tableless.serving.export.exporting import export_run
from tableless.serving.export.formats import SUFFIXES, open_file
from tests.conftest import few_visits
from tests.data.tiny import small_split

TRAINING = TrainConfig(epochs=1, batch_size=512)


def scattered_split():
    """Rows as always, ids over 64 bits: none of them is the number of a row."""
    split, rng = small_split(), np.random.default_rng(3)
    ids = [np.sort(rng.integers(2**40, 2**62, size)) for size in (split.train.num_users, split.train.num_items)]
    return replace(split, train=replace(split.train, user_ids=ids[0], item_ids=ids[1]))


def features_of(item_ids):
    """Every item has features of its own, which say which item it is; a row's number has none."""
    places = torch.arange(len(item_ids), dtype=torch.float32)
    return SideFeatures.from_matrix(item_ids, torch.stack([places.sin(), places.cos()], dim=-1))


@pytest.fixture(scope="module", params=["full", "compositional", "dhe"])
def trained(request, tmp_path_factory):
    """A model with features, trained by the fast recipe: its teacher is a table with the same features. And its run.

    Two closed schemes (the table itself, and one that is fitted to it) and an open one.
    """
    split = scattered_split()
    config = ModelConfig(scheme=request.param, budget="1/1", backbone="mlp", embedding_dim=8)
    plain = build_model(config, split, seed=0)
    model = MLP(users=plain.users, items=plain.items, item_features=features_of(split.train.item_ids), seed=0)
    asked = []
    handle = model.item_features.register_forward_pre_hook(lambda module, inputs: asked.append(inputs[0].clone()))
    out = tmp_path_factory.mktemp("features") / request.param
    with few_visits():
        model, _ = train_and_measure(DataConfig("scattered"), config, TRAINING, split, built=model, out=out)
    handle.remove()
    return model.eval(), split, out, torch.cat([ids.reshape(-1) for ids in asked])


@torch.no_grad()
def expected_scores(model, split, users):
    """Worked out by hand: the vector of the row, with the features of the id behind it."""
    rows = torch.arange(split.train.num_items)
    ids = torch.from_numpy(split.train.item_ids)
    features = torch.stack([rows.float().sin(), rows.float().cos(), torch.ones(len(rows))], dim=-1)
    items = torch.cat([model.items(ids if model.items.open_vocabulary else rows), features], dim=-1)
    user_ids = torch.from_numpy(split.train.user_ids[users])
    people = model.users(user_ids if model.users.open_vocabulary else torch.from_numpy(users).long())
    return model.score(people, items.expand(len(users), -1, -1))


def test_training_asks_for_the_features_of_ids_that_there_are(trained):
    _, split, _, asked = trained
    assert len(asked)
    assert np.isin(asked.numpy(), split.train.item_ids).all()
    assert len(asked.unique()) == split.train.num_items


def test_evaluation_ranks_items_by_their_own_features(trained):
    model, split, _, _ = trained
    users = np.array([0, 7, 199], np.int32)
    score = model_scores(model, split)
    torch.testing.assert_close(score(users), expected_scores(model, split, users), atol=1e-5, rtol=1e-4)
    lists = np.array([[1, 2], [50, 3], [119, 0]], np.int32)
    expected = expected_scores(model, split, users).gather(1, torch.from_numpy(lists).long())
    torch.testing.assert_close(score(users, lists), expected, atol=1e-5, rtol=1e-4)


def test_a_served_model_scores_and_recommends_by_the_features_of_the_id(trained):
    model, split, out, _ = trained
    served = tableless.load(out)
    user = int(split.train.user_ids[7])
    expected = expected_scores(model, split, np.array([7], np.int32))[0]
    item_ids = split.train.item_ids.tolist()
    torch.testing.assert_close(served.score(user, item_ids), expected, atol=1e-5, rtol=1e-4)
    best = served.recommend(user, count=5)
    assert [row.item for row in best] == [item_ids[place] for place in expected.topk(5).indices]


def test_an_exported_model_scores_by_the_features_of_the_id(trained, tmp_path):
    model, split, out, _ = trained
    # One kind is enough for ONNX, which takes long: the graph is the same in both formats (test_export.py).
    format = "onnx" if model.items.is_the_table else "torch"
    export_run(out, tmp_path, format=format)
    items = np.arange(split.train.num_items)
    users = np.full(len(items), 7)
    got = open_file(tmp_path / f"recommender{SUFFIXES[format]}", format)(
        torch.from_numpy(split.train.user_ids[users] if model.users.open_vocabulary else users),
        torch.from_numpy(split.train.item_ids if model.items.open_vocabulary else items),
    )
    expected = expected_scores(model, split, np.array([7], np.int32))[0]
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


def test_rows_without_their_ids_are_refused_and_not_taken_for_ids():
    schemes = {
        side: SCHEMES["full"].from_budget("1/1", embedding_dim=8, vocab_size=9, seed=seed)
        for seed, side in enumerate(("users", "items"))
    }
    model = MLP(**schemes, item_features=SideFeatures.from_matrix([70, 71], torch.eye(2))).eval()
    with pytest.raises(ValueError, match="kept by id"):
        model(torch.tensor([0]), torch.tensor([[1, 2]]))
    with torch.no_grad():
        known, unknown = (
            model(torch.tensor([0]), torch.tensor([[1, 2]]), ids) for ids in torch.tensor([[[70, 71]], [[1, 2]]])
        )
    assert not torch.equal(known, unknown)
