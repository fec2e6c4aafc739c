import pytest
import torch

import tableless
from tableless import SCHEMES, SideFeatures
from tableless.data.config import DataConfig
from tableless.embedding.tables import FullEmbedding
from tableless.recommender.backbone import TableTarget, rows_of_table
from tableless.recommender.models import (
    BACKBONES,
    GMF,
    MLP,
    Recommender,
    build_recommender,
    describe_recommender,
)
from tableless.recommender.pair_scores import _pair_products, pair_products
from tableless.recommender.runs import ModelConfig, train_and_measure
from tableless.recommender.training import TrainConfig
from tests.data.tiny import small_split


def full(size, dim=8, seed=0):
    return FullEmbedding(dim, vocab_size=size, initial_std=1.0, seed=seed)


@pytest.mark.parametrize("backbone", BACKBONES.values(), ids=BACKBONES)
def test_scoring_pairs_distinct_ids_and_everything_at_once_agree(backbone):
    model = backbone(users=full(5), items=full(7, seed=1)).eval()
    users, items = torch.arange(5), torch.arange(7).expand(5, 7)
    by_pair = model(users, items)
    everything = model.score_all(
        model.prepare_users(model.user_vectors(users)), model.prepare_items(model.item_vectors(torch.arange(7)))
    )
    torch.testing.assert_close(by_pair, everything)
    torch.testing.assert_close(model.score(model.user_vectors(users), model.item_vectors(items)), by_pair)


def test_gmf_is_a_weighted_sum_over_the_product():
    model = GMF(users=full(3), items=full(4, seed=1))
    model.weight.data.normal_()
    model.bias.data.fill_(0.5)
    expected = (model.users.table[2] * model.items.table[3] * model.weight).sum() + 0.5
    torch.testing.assert_close(model(torch.tensor([2]), torch.tensor([[3]]))[0, 0], expected)


def test_mlp_has_the_layers_of_the_paper():
    model = MLP(users=full(3, dim=32), items=full(4, dim=32))
    shapes = [(layer.in_features, layer.out_features) for layer in [model.first, *model.layers, model.output]]
    assert shapes == [(64, 256), (256, 128), (128, 64), (64, 32), (32, 1)]


def test_side_features_can_enter_the_mlp_beside_the_item():
    features = SideFeatures.from_matrix([100, 101, 102, 103], torch.eye(4))
    model = MLP(users=full(3), items=full(4), item_features=features).eval()
    assert model.first.in_features == 8 + 8 + 5
    rows, ids = torch.tensor([[1, 2]]), torch.tensor([[101, 102]])
    first = model(torch.tensor([0]), rows, ids)
    features.add([101], torch.ones(1, 4))
    second = model(torch.tensor([0]), rows, ids)
    assert first[0, 0] != second[0, 0]
    assert first[0, 1] == second[0, 1]


@pytest.mark.parametrize("name", SCHEMES)
def test_any_scheme_can_be_given_to_a_recommender(name):
    def scheme(seed):
        return SCHEMES[name].from_budget("1/1", embedding_dim=8, vocab_size=400, seed=seed)

    model = GMF(users=scheme(0), items=scheme(1))
    scores = model(torch.arange(6), torch.arange(12).view(6, 2))
    assert scores.shape == (6, 2)
    assert model.num_parameters == model.embedding_parameters + 9


def test_dimensions_that_differ_are_refused():
    with pytest.raises(ValueError, match="users have 8 dimensions and items 4"):
        GMF(users=full(3), items=full(3, dim=4))


def test_the_compiled_products_and_their_gradients_are_those_of_torch():
    generator = torch.Generator().manual_seed(0)
    user, item = torch.randint(0, 6, (40,), generator=generator), torch.randint(0, 9, (40, 3), generator=generator)
    weights = torch.randn(40, 3, generator=generator)
    results = []
    for function in (_pair_products, lambda u, v, i, j: torch.einsum("bd,bnd->bn", u[i], v[j])):
        users = torch.randn(6, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
        items = torch.randn(9, 5, generator=torch.Generator().manual_seed(2)).requires_grad_()
        scores = function(users, items, user, item)
        (scores * weights).sum().backward()
        results.append((scores.detach(), users.grad, items.grad))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert pair_products(torch.ones(1, 2), torch.ones(1, 2), torch.tensor([0]), torch.tensor([[0]])).item() == 2


class Nearness(Recommender):
    """The nearer a user and an item are, the higher the score: a backbone that the library does not have."""

    pairs_per_second = 1e6

    def __init__(self, *, users, items, seed=0):
        super().__init__(users=users, items=items, seed=seed)
        self.bias = torch.nn.Parameter(torch.zeros(()))

    def score(self, users, items):
        return self.bias - (users.unsqueeze(-2) - items).square().sum(-1)

    def prepare_users(self, users):
        return users

    def prepare_items(self, items):
        return items

    def score_pairs(self, users, items, user, item):
        return self.score(users[user], items[item])

    def score_all(self, users, items):
        return self.score(users, items.expand(len(users), -1, -1))

    def score_lists(self, users, items, item):
        return self.score(users, items[item])

    def targets(self):
        sides = (("users", self.users), ("items", self.items))
        return {side: TableTarget(rows_of_table(scheme), torch.eye(scheme.embedding_dim)) for side, scheme in sides}


def test_a_new_backbone_is_one_class_and_one_line(monkeypatch, tmp_path, short_fits):
    monkeypatch.setitem(BACKBONES, "nearness", Nearness)
    config = ModelConfig(scheme="dhe", budget="1/1 parameters", backbone="nearness", embedding_dim=8)
    training = TrainConfig(epochs=2, batch_size=512, learning_rate=1e-2)
    data = DataConfig("world:users=200,items=120,actions=6000,clusters=4")
    model, results = train_and_measure(data, config, training, small_split(), out=tmp_path / "run")
    assert [stage["stage"] for stage in results["stages"]] == ["table (Nearness)", "fit", "tuning"]
    loaded = tableless.load(tmp_path / "run", index="faiss")
    assert type(loaded.run.model) is Nearness
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in loaded.run.model.state_dict().items())
    best = loaded.recommend(3, count=5)
    assert [row.score for row in best] == sorted((row.score for row in best), reverse=True)
    with pytest.raises(ValueError, match="no inner products"):
        loaded.recommend(3, exact=False)


@pytest.mark.parametrize("features", [None, SideFeatures.from_matrix([100, 101, 102, 103], torch.eye(4))])
def test_a_description_builds_the_same_model_again_with_its_features(features):
    model = MLP(users=full(3), items=full(4), item_features=features, seed=5).eval()
    description = describe_recommender(model)
    assert ("item_features" in description) == (features is not None)
    again = build_recommender(description).eval()
    again.load_state_dict(model.state_dict())
    asked = torch.tensor([1]), torch.tensor([[1, 2]]), torch.tensor([[101, 102]])
    assert torch.equal(again(*asked), model(*asked))
