"""Each kind of run works, on a small world."""

import json

import numpy as np
import pytest
import torch
from experiments import (
    choices,
    clicks,
    cold_start,
    experts,
    new_ids,
    online,
    online_tuning,
    table1,
    table2,
    table3,
    table7,
    teacher,
    training_runs,
)

from tableless.data.config import DataConfig
from tableless.recommender.models import GMF
from tests.experiments.fakes import WORLD, in_the_world


@pytest.mark.parametrize("choice", choices.CHOICES.values(), ids=lambda choice: choice.name)
def test_the_value_in_use_is_among_those_that_are_tried(choice):
    assert choice.in_use() in choice.alternatives
    assert len(set(choice.alternatives)) == len(choice.alternatives) > 1


def test_a_run_of_a_choice_has_the_constant_that_it_names(monkeypatch):
    seen = {}

    def note(settings):
        seen[settings["choice"], str(settings["value"])] = GMF.table_decay, settings["model"]["options"]
        return {}

    monkeypatch.setattr(choices, "train_and_measure", note)
    by_name = {(run["choice"], str(run["value"])): run for run in choices.EXPERIMENT.runs}
    before = GMF.table_decay
    for name in (("weight decay of the table to learn from", "0.3"), ("number of hashes", "32")):
        choices.perform(by_name[name])
    assert seen["weight decay of the table to learn from", "0.3"] == (0.3, {})
    assert seen["number of hashes", "32"] == (before, {"num_hashes": 32})
    assert before == GMF.table_decay, "and afterwards it is as it was"


def test_encodings_that_know_only_numbered_ids_can_be_trained():
    settings = next(run for run in table3.EXPERIMENT.runs if run["model"]["options"] == {"encoding": "identity"})
    assert 0 < table3.perform(in_the_world(settings))["auc"] < 1


def test_the_table_learned_from_is_trained_once():
    settings = in_the_world(training_runs.settings(training_runs.MOVIELENS, "dhe", "1/4", 0, recipe="fast"))
    first, second = training_runs.perform(settings), training_runs.perform(settings)
    assert first["auc"] == second["auc"]
    (table,) = [stage for stage in first["stages"] if stage["stage"] == "table (GMF)"]
    assert table in second["stages"]  # with the seconds of the one training
    assert not first["capped"], "a table by softmax has one cycle, which has its length"
    assert (table["epochs"], table["settings"]["loss"]) == (1, "softmax")
    by_pairs = settings | {"train": settings["train"] | {"loss": "bce"}}
    third = training_runs.perform(by_pairs)
    (other,) = [stage for stage in third["stages"] if stage["stage"] == "table (GMF)"]
    assert third["capped"], "after one epoch the table might still have risen"
    assert (other["epochs"], other["capped"], other["settings"]["weight_decay"]) == (1, True, GMF.table_decay)


def test_genres_alone_give_like_films_the_same_score():
    settings = next(run for run in table7.EXPERIMENT.runs if run["encoding"] == table7.GENRES and run["genres_in_mlp"])
    settings = in_the_world(settings) | {
        "model": settings["model"] | {"budget": "8/1 parameters"}
    }  # 1024 inputs of users
    assert 0 < table7.perform(settings)["auc"] < 1
    split = training_runs.split_of(DataConfig(WORLD))
    model = table7._model(training_runs.ModelConfig(**settings["model"]), split, table7.GENRES, WORLD, 0)
    ids = torch.tensor([3, 13, 4])  # genres follow from the last digit in the world
    vectors = model.items.eval()(ids)
    torch.testing.assert_close(vectors[0], vectors[1])  # some CPUs round by the place in a batch
    assert not torch.allclose(vectors[0], vectors[2])


@pytest.mark.parametrize("way", [new_ids.SHARED_ROW, new_ids.WITH_GENRES])
def test_new_ids_are_answered(way):
    settings = next(run for run in new_ids.EXPERIMENT.runs if run["way"] == way)
    results = new_ids.perform(in_the_world(settings, split="global-time"))
    assert 0 < results["auc"] < 1


def test_ways_of_training_differ_by_recipe_and_network_alone():
    by_way = {way: teacher._runs(way)[0] for way in teacher.WAYS}
    assert [run["train"]["recipe"] for run in by_way.values()] == ["fast", "paper", "paper"]
    assert by_way[teacher.OURS_END_TO_END]["model"]["options"]["num_hashes"] == 64
    assert by_way[teacher.PUBLISHED]["model"]["options"]["num_hashes"] == 1024
    settings = by_way[teacher.PUBLISHED]
    settings = settings | {
        "model": settings["model"] | {"budget": "8/1 parameters"}
    }  # the published network has 1024 inputs
    results = training_runs.perform(in_the_world(settings))
    assert results["seconds"] > 0
    assert 0 < results["auc"] < 1


@pytest.mark.parametrize("scheme", online.WAYS)
def test_a_stream_is_measured_window_by_window(scheme, monkeypatch):
    quarter = 160 * online.DIM if scheme != "dhe" else 20_000  # bytes: 160 ids, which are too few for a network
    monkeypatch.setattr(online, "bytes_of_a_quarter", lambda users, items: quarter)
    (settings,) = [run for run in online.runs_of(online.GLOBO, scheme) if run["seed"] == 0]
    results = online.perform(settings | {"data": WORLD, "batch_size": 64, "windows": 4})
    windows = results["by_window"]
    assert len(windows) == 4
    # Windows are whole batches: three of 512 actions, and what is left of 2000.
    for metric in ("auc", "auc_recent"):
        weighted = np.average([window[metric] for window in windows], weights=[512, 512, 512, 464])
        assert results[metric] == pytest.approx(weighted, abs=1e-5)
    assert results["bytes"] <= (5 if scheme == online.GROWING_LARGE else 1.5) * quarter
    assert set(results["first_clicks"]) == {"1", "10", "100"}


def test_all_ways_are_asked_the_same():
    settings = {"data": WORLD, "share": 1.0, "batch_size": 64, "seed": 1}
    users, items = online.actions_in_order(WORLD)
    first, again = ([batch for _, batch in online._batches(users, items, settings)] for _ in range(2))
    assert all(np.array_equal(own.candidates, other.candidates) for own, other in zip(first, again, strict=True))
    assert np.concatenate([own.candidates[:, 0] for own in first]).tolist() == items.tolist()
    seen = set()
    for batch in first:
        recent = set(batch.candidates[:, 5:].ravel().tolist())
        assert recent <= seen or not seen  # what is asked against is known before
        seen |= set(batch.candidates[:, 0].tolist())
        assert set(batch.candidates[:, 1:5].ravel().tolist()) <= seen


def test_the_number_of_an_item_s_click():
    assert online.numbers_of_clicks(np.array([7, 3, 7, 7, 3])).tolist() == [0, 0, 1, 2, 1]


@pytest.mark.parametrize("way", online_tuning.WAYS)
def test_every_way_of_a_stream_gets_as_many_settings(way):
    tried = online_tuning.drawn_settings(way)
    assert len(tried) == {online.DECAYED: 6, "dhe": 26}.get(way, 24), "of the 24 drawn for tables, two came twice"
    assert json.loads(json.dumps(tried)) == tried


@pytest.mark.parametrize("scheme", [clicks.FULL, *clicks.SMALL])
def test_click_models_of_every_scheme_learn_from_the_same_tables(scheme, monkeypatch):
    monkeypatch.setattr("tableless.recommender.clicks.sizing.FEW_VALUES", 12)  # so that users and items count as many
    monkeypatch.setattr("tableless.recommender.clicks.click_recipe.TUNING_EPOCHS", 1)
    model = {"backbone": "fm", "scheme": scheme, "budget": "1/2", "embedding_dim": 8}
    results = clicks.perform({"data": WORLD, "model": model, "train": {"num_negatives": 2, "seed": 0, "epochs": 2}})
    expected = ["tables", "fit", "tuning"] + (["rounding"] if scheme in ("dhe", "joint") else [])
    assert [stage["stage"] for stage in results["stages"]] == (expected if scheme != "full" else ["tables"])
    assert set(results["values"]) == {"user", "item", "device"}
    assert 0 < results["auc"] < 1
    assert results["capped"], "two epochs end at the limit"
    assert (results["bytes"] <= results["table_bytes"] / 2) == (scheme != "full")


def test_experts_share_out_the_arithmetic():
    settings = in_the_world(experts.EXPERIMENT.runs[0])
    settings["model"] |= {"budget": "2/1 parameters", "options": {"num_experts": 2}}
    results = experts.perform(settings)
    assert results["user_experts"] == 2
    # Beside the matrices a network has but biases: half of the parameters, less those.
    assert 0.9 * results["embedding_parameters"] / 2 < results["user_products"] + results["item_products"]
    assert results["user_products"] + results["item_products"] < results["embedding_parameters"] / 2


def test_schemes_are_asked_about_new_ids_and_collisions():
    sizes = {"budget": "1/4 parameters", "vocab_size": 1000, "larger_vocab_size": 2000}
    full = table1.perform({"scheme": "full", **sizes})
    trick = table1.perform({"scheme": "hashing-trick", **sizes})
    dhe = table1.perform({"scheme": "dhe", **sizes})
    assert (full["answers_new_ids"], trick["answers_new_ids"], dhe["answers_new_ids"]) == (False, True, True)
    assert full["parameters_for_larger_vocabulary"] == 2 * full["num_parameters"]
    assert dhe["parameters_for_larger_vocabulary"] == dhe["num_parameters"]
    assert trick["ids_sharing_a_vector"] > 0.9
    assert dhe["ids_sharing_a_vector"] == full["ids_sharing_a_vector"] == 0


def test_encodings_have_the_properties_that_the_paper_gives_them():
    results = table2.perform({"num_ids": 2000, "num_hashes": 256, "seed": 0})
    assert {name: table2._verdicts(report) for name, report in results.items()} == table2.PAPER


@pytest.mark.parametrize("model", cold_start.WARM)
def test_cold_items_are_answered_by_every_way(model, short_fits):
    tiny = DataConfig("world:users=200,items=120,actions=6000")
    results = cold_start.perform(cold_start.run_of(tiny, model, 1))
    ways = {cold_start.MEAN_ROW, cold_start.RARE_ROW, cold_start.AS_IT_IS, cold_start.POPULARITY, cold_start.CONTENT}
    told = {cold_start.FEATURES} if "ids alone" not in model else set()
    assert results["new items"].keys() == ways | told
    assert results["new items"][cold_start.MEAN_ROW]["auc new"] == 0.5, "all new items alike"
    assert results["new items"][cold_start.CONTENT]["auc new"] != 0.5
