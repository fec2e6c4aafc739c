import copy
import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

import tableless
from tableless import SCHEMES, cli, to_ids
from tableless.data.config import DataConfig
from tableless.data.loading import load_split
from tableless.embedding.inference.int8 import is_supported
from tableless.recommender.models import GMF, MLP, describe_recommender
from tableless.recommender.run_directory import RunDirectory, item_list
from tableless.recommender.runs import ModelConfig, train_and_measure
from tableless.recommender.stream_runs import run_stream
from tableless.recommender.training import TrainConfig

from .conftest import WORLD


@pytest.fixture(scope="module")
def model(runs):
    return tableless.load(runs / "open")


@pytest.fixture(scope="module")
def closed(runs):
    return tableless.load(runs / "closed")


def scores_of_all_items(directory, user):
    """What the model itself says, in the plainest way."""
    trained = RunDirectory(directory).read()
    items = trained.items["item"].to_list()
    with torch.no_grad():
        rows = inputs(trained, "item", items).unsqueeze(0)
        return dict(zip(items, trained.model(inputs(trained, "user", [user]), rows)[0].tolist(), strict=True))


def inputs(trained, side, raw):
    """What the scheme of a side is fed for raw ids."""
    rows_by_id = trained.rows_by_id(side)
    return to_ids(raw) if rows_by_id is None else rows_by_id(to_ids(raw))


@torch.no_grad()
def vectors_of_scheme(directory, side, raw):
    trained = RunDirectory(directory).read()
    return trained.scheme(side)(inputs(trained, side, raw))


def test_vectors_are_those_of_the_scheme_for_known_and_new_ids(runs, model):
    for side, names in (("item", ["item-7", "never seen", "item-7"]), ("user", ["user-3", "a stranger", "user-3"])):
        expected = vectors_of_scheme(runs / "open", side, names)
        torch.testing.assert_close(model.embed(names, side=side), expected, atol=1e-5, rtol=1e-5)


def test_ids_come_in_any_container(model):
    names = ["item-7", "item-8"]
    expected = model.embed(names)
    assert expected.shape == (2, 16)
    for ids in (pl.Series(names), np.array(names), to_ids(names), to_ids(names).numpy(), iter(names), tuple(names)):
        torch.testing.assert_close(model.embed(ids), expected, atol=1e-6, rtol=0)
    assert model.embed([]).shape == (0, 16)


def test_vectors_can_be_trained_on(model):
    layer = torch.nn.Linear(16, 1)
    layer(model.embed(["item-7"])).sum().backward()
    assert layer.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ["open", "mlp"])
def test_scores_are_those_of_the_recommender(runs, name):
    served, expected = tableless.load(runs / name), scores_of_all_items(runs / name, "user-3")
    items = list(expected)[:5]
    one_user = served.score("user-3", items)
    assert one_user.tolist() == pytest.approx([expected[item] for item in items], abs=1e-5)
    assert served.score(["user-3"] * 5, items).tolist() == pytest.approx(one_user.tolist(), abs=1e-5)


def test_users_and_items_that_make_no_pairs_are_refused(model):
    with pytest.raises(ValueError, match="2 users and 3 items make no pairs"):
        model.score(["a", "b"], ["x", "y", "z"])


@pytest.mark.parametrize("name", ["open", "mlp", "closed"])
@pytest.mark.parametrize("index", ["exact", "faiss"])
def test_the_best_items_are_recommended(runs, name, index):
    user = 3 if name == "closed" else "user-3"
    expected = scores_of_all_items(runs / name, user)
    best = tableless.load(runs / name, index=index).recommend(user, count=5)
    assert [row.item for row in best] == sorted(expected, key=expected.get, reverse=True)[:5]
    assert [row.score for row in best] == pytest.approx([expected[row.item] for row in best], abs=1e-5)


def test_recommending_more_items_than_there_are_gives_all(model):
    assert len(model.recommend("user-3", count=1000)) == model.num_items


def test_a_new_user_is_answered_by_an_open_scheme_only(model, closed):
    assert len(model.recommend("a stranger", count=4)) == 4
    with pytest.raises(ValueError, match="open to new ids"):
        closed.recommend(123_456_789)


@pytest.mark.parametrize("index", ["exact", "faiss"])
def test_what_a_user_has_had_is_not_recommended_again(runs, ratings, index):
    had = set(pl.read_csv(ratings).filter(pl.col("user_id") == "user-3")["item_id"])
    model = tableless.load(runs / "open", interactions=ratings, index=index)
    everything = [row.item for row in model.recommend("user-3", count=1000)]
    assert set(everything) == set(model.run.items["item"]) - had
    assert had & {row.item for row in model.recommend("user-3", count=1000, exclude_seen=False)} == had
    assert len(model.recommend("a stranger", count=1000)) == model.num_items


def test_the_command_leaves_out_what_a_user_has_had(runs, ratings):
    arguments = ["recommend", str(runs / "open"), "--user", "user-3", "-n", "1000", "--json"]
    everything, rest = (
        json.loads(CliRunner().invoke(cli.app, [*arguments, *more]).stdout)["items"]
        for more in ([], ["--interactions", str(ratings)])
    )
    had = set(pl.read_csv(ratings).filter(pl.col("user_id") == "user-3")["item_id"])
    assert {row["item"] for row in everything} - {row["item"] for row in rest} == had


def test_interactions_with_another_kind_of_id_are_refused(runs):
    with pytest.raises(ValueError, match="they would never match"):
        tableless.load(runs / "open", interactions=WORLD)


def test_neighbors_are_the_items_with_the_highest_cosine(runs, model):
    items = model.run.items["item"].to_list()
    vectors = torch.nn.functional.normalize(vectors_of_scheme(runs / "open", "item", items), dim=-1)
    cosines = dict(zip(items, (vectors @ vectors[items.index("item-7")]).tolist(), strict=True))
    del cosines["item-7"]  # it is not its own neighbour
    found = model.neighbors("item-7", count=5)
    assert [row.id for row in found] == sorted(cosines, key=cosines.get, reverse=True)[:5]
    assert [row.similarity for row in found] == pytest.approx([cosines[row.id] for row in found], abs=1e-5)
    assert len(model.neighbors("a new item", count=5)) == 5


def test_users_have_neighbors_where_users_are_known(model, closed, runs, ratings):
    with pytest.raises(ValueError, match="does not list its users"):
        model.neighbors("user-3", side="user")
    assert 3 not in {row.id for row in closed.neighbors(3, side="user", count=1000)}
    by_id = tableless.load(runs / "open", interactions=ratings).neighbors("user-3", side="user", count=1)[0]
    assert by_id.id in to_ids([f"user-{number}" for number in range(200)]).tolist()


def test_an_index_is_asked_for_when_loading_and_an_mlp_has_none(runs, model):
    with pytest.raises(ValueError, match="index='faiss'"):
        model.recommend("user-3", exact=False)
    with pytest.raises(ValueError, match="no inner products"):
        tableless.load(runs / "mlp", index="faiss").recommend("user-3", exact=False)


def test_features_of_items_count_in_scores_and_recommendations(runs):
    plain = RunDirectory(runs / "mlp").read()
    featured = MLP(
        users=plain.model.users,
        items=plain.model.items,
        item_features=tableless.SideFeatures.from_matrix(["item-7"], [[5.0, -5.0]]),
    )
    trained = replace(plain, model=featured.eval())
    served = type(tableless.load(runs / "mlp"))(trained)
    with torch.no_grad():
        expected = trained.model(to_ids(["user-3"]), to_ids(["item-7"]).unsqueeze(0))
    assert served.score("user-3", ["item-7"]).item() == pytest.approx(expected.item(), abs=1e-5)
    of_item = {row.item: row.score for row in served.recommend("user-3", count=1000)}
    assert of_item["item-7"] == pytest.approx(expected.item(), abs=1e-5)


def test_titles_come_with_answers_and_find_items(runs, tmp_path):
    path = tmp_path / "titles.csv"
    path.write_text("item_id,Title\n" + "\n".join(f'item-{number},"Film {number}, the"' for number in range(110)))
    model = tableless.load(runs / "open", metadata=path)
    assert model.title("item-7") == "Film 7, the"
    assert model.title("item-115") is None
    assert all(row.title == model.title(row.item) for row in model.recommend("user-3", count=1000))
    assert all(row.title == model.title(row.id) for row in model.neighbors("item-7", count=1000))
    assert [row.item for row in model.items_matching("film 7,")] == ["item-7"]
    assert {row.item for row in model.items_matching("ITEM-11")} >= {"item-110", "item-115"}
    assert model.items_matching("item-11", count=1)[0].item == "item-11"


def test_items_are_found_with_the_most_popular_first(closed):
    counts = dict(zip(closed.run.items["item"], closed.run.items["actions"], strict=True))
    found = closed.items_matching("", count=10)
    assert [row.actions for row in found] == sorted(counts.values(), reverse=True)[:10]
    assert all(counts[row.item] == row.actions for row in found)


def test_the_map_keeps_distances_as_well_as_a_plane_can(closed):
    points = closed.map2d(count=50)
    assert [point.item for point in points] == [row.item for row in closed.items_matching("", count=50)]
    vectors = closed.embed([point.item for point in points])
    best = torch.linalg.svdvals(vectors - vectors.mean(dim=0))[:2].square().sum()
    kept = sum(point.x**2 + point.y**2 for point in points)
    assert kept == pytest.approx(best.item(), rel=1e-4)


def test_facts_say_what_tables_would_have_cost(runs, closed, model):
    assert closed.facts["table_parameters"] == closed.facts["embedding_parameters"] == (200 + 120) * 16
    assert closed.facts["table_bytes"] == 4 * (200 + 120) * 16
    weights = {side: parts["weights"] for side, parts in closed.facts["bytes_by_part"].items()}
    assert weights == {"users": 4 * 200 * 16, "items": 4 * 120 * 16}
    for facts in (closed.facts, model.facts):
        assert facts["bytes"] == sum(sum(parts.values()) for parts in facts["bytes_by_part"].values())
        assert facts["bytes_per_id"] == pytest.approx(facts["bytes"] / (200 + 120), abs=1e-3)
    assert model.facts["bytes_by_part"]["users"].keys() == {"weights", "hash functions"}
    assert closed.facts["results"]["auc"] == json.loads((runs / "closed" / "results.json").read_text())["auc"]
    assert (model.facts["scheme"], model.facts["backbone"], model.facts["num_items"]) == ("dhe", "gmf", 120)


def test_hot_ids_are_counted_for_users_and_items_together(runs, monkeypatch):
    monkeypatch.setattr("tableless.serving.fast_embedding._FIRST_CHOICE", 10)
    model = tableless.load(runs / "open", hot_ids=4)
    model.prepare()
    assert model.hot_hit_rate is None  # to compute the vectors of all items is no traffic
    for _ in range(3):
        model.embed(["item-7"] * 10)
    model.embed(["user-3"], side="user")
    assert model.hot_counts == (20, 31)
    assert model.hot_hit_rate == pytest.approx(20 / 31)


def test_a_run_on_a_stream_answers_by_id_since_it_kept_no_names(ratings, tmp_path):
    (tmp_path / "data").mkdir()
    pl.read_csv(ratings).write_parquet(tmp_path / "data" / "part.parquet")
    training = TrainConfig(epochs=1, batch_size=256)
    network = ModelConfig(scheme="dhe", budget="20000", embedding_dim=16, options={"depth": 1})
    run_stream(DataConfig(data=str(tmp_path / "data")), network, training, out=tmp_path / "run")
    model = tableless.load(tmp_path / "run")
    best = model.recommend("user-3", count=1)[0]
    assert best.item in to_ids([f"item-{number}" for number in range(120)]).tolist()
    assert model.score("user-3", [best.item]).item() == pytest.approx(best.score, abs=1e-5)
    assert model.items_matching("", count=1)[0].actions is None


def test_a_string_is_refused_where_ids_are_integers(closed):
    for ask in (lambda: closed.recommend("3"), lambda: closed.embed(pl.Series(["3"])), lambda: closed.score(3, ["7"])):
        with pytest.raises(ValueError, match=r"are integers in this run's data, and '[37]' is a string"):
            ask()
    assert closed.parse("user", "3") == 3


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda model: model.recommend("u", count=0), "count is 0"),
        (lambda model: model.neighbors("u", count=-1), "count is -1"),
        (lambda model: model.embed(["u"], side="device"), "side is 'device'"),
        (lambda model: tableless.load(model.directory, index="annoy"), "index is 'annoy'"),
        (lambda model: tableless.load(model.directory, precision="int2"), "precision is 'int2'"),
    ],
)
def test_mistakes_are_named(model, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(model)


def test_threads_that_ask_at_once_get_what_one_alone_gets(runs, model):
    users = [f"user-{number}" for number in range(40)]
    fresh = tableless.load(runs / "open", index="faiss")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda user: (fresh.recommend(user), fresh.neighbors(f"item-{user[5:]}")), users))
    for user, (best, near) in zip(users, answers, strict=True):
        assert [row.item for row in best] == [row.item for row in model.recommend(user)]
        assert [row.id for row in near] == [row.id for row in model.neighbors(f"item-{user[5:]}")]


def test_users_and_items_without_a_row_are_not_answered_for_after_a_global_time_split(tmp_path):
    data = DataConfig(data=WORLD, split="global-time")
    split = load_split(data)
    assert split.num_known_users < split.train.num_users
    training = TrainConfig(epochs=1, batch_size=256)
    train_and_measure(data, ModelConfig(scheme="full", embedding_dim=8), training, split, out=tmp_path / "run")
    model = tableless.load(tmp_path / "run")
    assert len(model.recommend(int(split.train.user_ids[0]), count=1000)) == split.num_known_items
    with pytest.raises(ValueError, match="not in the training data"):
        model.recommend(int(split.train.user_ids[-1]))


@pytest.mark.skipif(not is_supported(), reason="needs a CPU with VNNI instructions")
def test_int8_vectors_are_nearly_those_of_fp32(runs, model):
    quick = tableless.load(runs / "open", precision="int8")
    assert quick.facts["precision"] == "int8"
    assert not torch.equal(quick.embed(["item-7"]), model.embed(["item-7"]))
    cosine = torch.nn.functional.cosine_similarity(quick.embed(["item-7", "x"]), model.embed(["item-7", "x"]))
    assert cosine.min() > 0.98


def test_facts_name_the_precision_that_is_computed_on_each_side(runs, tmp_path, monkeypatch):
    monkeypatch.setattr("tableless.embedding.inference.int8.is_supported", lambda: True)  # without it slow, not wrong
    assert tableless.load(runs / "closed", precision="int8").facts["precision"] == "fp32", "tables are not rounded"
    network, table = (SCHEMES[name].from_budget(9000, embedding_dim=8, vocab_size=300) for name in ("dhe", "bloom"))
    for users, items, said in ((network, table, "users int8, items fp32"), (network, copy.deepcopy(network), "int8")):
        model = GMF(users=users, items=items)
        config = {"model": describe_recommender(model), "kinds": {"user": "integer", "item": "integer"}}
        items_listed = item_list([7, 900], actions=[1, 2])
        RunDirectory(tmp_path / said).write(config, model.state_dict(), items=items_listed)
        assert tableless.load(tmp_path / said, precision="int8").facts["precision"] == said


def test_importing_the_library_loads_nothing_of_serving():
    code = "import sys, tableless; print([name for name in sys.modules if name.startswith('tableless.serving')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_answers_in_python_say_whether_an_id_is_known(runs, ratings):
    opened, closed = tableless.load(runs / "open"), tableless.load(runs / "closed")
    assert opened.is_known("item", "item-3") is True
    assert opened.is_known("item", "never seen") is False
    assert opened.neighbors("never seen").known is False
    assert opened.recommend("user-3").known is opened.is_known("user", "user-3") is None
    assert closed.is_known("user", 3) is True
    assert closed.is_known("user", 10**9) is False
    with_data = tableless.load(runs / "open", interactions=ratings)
    assert with_data.recommend("user-3").known is True
    assert with_data.recommend("nobody").known is False
    assert isinstance(with_data.recommend("nobody"), list)


@pytest.mark.parametrize("ids", [[3, 17850], np.array([3, 17850]), torch.tensor([3, 17850]), (3, 17850)])
def test_an_id_without_a_row_is_named_in_the_error(runs, ids):
    closed = tableless.load(runs / "closed")
    with pytest.raises(ValueError, match="user 17850 was not in the training data"):
        closed.embed(ids, side="user")
    with pytest.raises(ValueError, match="user 17850 was not in the training data"):
        closed.score(ids, [1, 2])


def test_example_users_come_from_the_run_and_are_known(runs, ratings, tmp_path):
    users = tableless.load(runs / "open").facts["example_users"]
    assert len(users) == 3
    with_data = tableless.load(runs / "open", interactions=ratings)
    assert all(with_data.is_known("user", user) for user in users)
    closed = tableless.load(runs / "closed")
    assert all(closed.is_known("user", int(user)) for user in closed.facts["example_users"])
    without = shutil.copytree(runs / "open", tmp_path / "older")
    (without / "example_users.json").unlink()  # as older runs are
    assert tableless.load(without).facts["example_users"] == []
    assert tableless.load(without, interactions=ratings).facts["example_users"] == users
    older = shutil.copytree(runs / "closed", tmp_path / "older table")
    (older / "example_users.json").unlink()
    assert tableless.load(older).facts["example_users"] == closed.facts["example_users"]


@pytest.mark.parametrize("scheme", ["full", "bloom"])
def test_no_example_users_are_shown_if_they_are_not_wanted(ratings, tmp_path, scheme):
    """Not even those that the run lists (`full`), or those of interactions that the server is given."""
    settings = {"scheme": scheme, "config": TrainConfig(epochs=1), "out": tmp_path / "run"}
    assert tableless.train(ratings, example_users=False, **settings).facts["example_users"] == []
    assert tableless.load(tmp_path / "run").facts["example_users"] == []
    assert tableless.load(tmp_path / "run", interactions=ratings).facts["example_users"] == []


def test_example_users_do_not_travel(runs, tmp_path):
    tableless.load(runs / "open").save_pretrained(tmp_path / "published")
    assert not (tmp_path / "published" / "example_users.json").exists()
