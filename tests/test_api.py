"""The functions of `tableless`: the results of the commands, to the last digit, from data of any form."""

import gc
import inspect
import json
from dataclasses import fields

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from typer.testing import CliRunner

import tableless
from tableless import TrainConfig, cli
from tableless.data.config import DataConfig
from tableless.recommender.comparison import Plan
from tableless.recommender.runs import ModelConfig
from tests.conftest import few_visits

CONFIG = TrainConfig(epochs=2, batch_size=256, seed=3)
SETTINGS = ["--epochs", "2", "--batch-size", "256", "--seed", "3"]


@pytest.fixture(autouse=True, scope="module")
def _short_fits():
    with few_visits():
        yield


def command(*arguments):
    """What a command prints for machines."""
    result = CliRunner().invoke(cli.app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def without_seconds(results):
    """All that was measured, but how long it took."""
    if isinstance(results, dict):
        return {key: without_seconds(value) for key, value in results.items() if "seconds" not in key and key != "out"}
    return [without_seconds(value) for value in results] if isinstance(results, list) else results


def ratings_with(ids):
    """Columns in no order, a column of no use, times in no order, and ids that are no row numbers."""
    generator = np.random.default_rng(1)
    users, items = np.divmod(generator.permutation(70 * 45)[:1200], 45)
    frame = pl.DataFrame(
        {"stars": users % 5, "when": 10**9 + generator.permutation(1200) * 13, "item": items, "user": users}
    )
    if ids == "integers":
        return frame.with_columns(item=pl.col("item") * 7 + 2**40, user=500 - pl.col("user") * 11)
    return frame.with_columns(item=pl.format("film-{}", "item"), user=pl.format("ann-{}", pl.col("user") * 3))


FORMS = {
    "polars": lambda frame: frame,
    "polars, lazy": lambda frame: frame.lazy(),
    "pandas": lambda frame: frame.to_pandas(),
    "pandas, with another index": lambda frame: frame.to_pandas().set_index(np.arange(len(frame))[::-1] * 5),
    "pandas, by category": lambda frame: frame.to_pandas().astype({"user": "category"}),
    "Arrow": lambda frame: frame.to_arrow(),
    "dict of arrays": lambda frame: {name: frame[name].to_numpy() for name in frame.columns},
    "dict of lists": lambda frame: frame.to_dict(as_series=False),
    "dict of series": lambda frame: {"user": frame["user"], "when": pd.Series(frame["when"]), "item": frame["item"]},
}


@pytest.fixture(scope="module", params=["integers", "strings"])
def ratings(request):
    return ratings_with(request.param)


@pytest.fixture(scope="module")
def file(ratings, tmp_path_factory):
    path = tmp_path_factory.mktemp("ratings") / "ratings.csv"
    ratings.write_csv(path)
    return path


@pytest.fixture(scope="module")
def commanded(file):
    """The results of the command, and the run directory that it leaves."""
    out = file.parent / "run"
    return command("train", file, "--scheme", "bloom", "--time-col", "when", *SETTINGS, "--out", out), out


@pytest.fixture(scope="module")
def model(ratings):
    """A model that was trained on a frame, and is in no directory of the user's."""
    return tableless.train(ratings, scheme="bloom", time_col="when", config=CONFIG)


class TestTrain:
    @pytest.mark.parametrize("form", FORMS)
    def test_data_in_memory_gives_the_results_of_the_command_on_its_file(self, form, ratings, commanded):
        model = tableless.train(FORMS[form](ratings), scheme="bloom", time_col="when", config=CONFIG)
        assert without_seconds(model.results) == without_seconds(commanded[0])

    def test_so_does_the_file(self, file, commanded):
        model = tableless.train(file, scheme="bloom", time_col="when", config=CONFIG)
        assert without_seconds(model.results) == without_seconds(commanded[0])

    @pytest.mark.parametrize(
        "take", [tuple, lambda columns: np.stack(columns, 1), lambda columns: torch.tensor(np.stack(columns, 1))]
    )
    def test_arrays_without_names_are_users_items_and_times(self, take):
        frame = ratings_with("integers")
        expected = tableless.train(frame, scheme="full", time_col="when", config=CONFIG)
        arrays = take([frame[name].to_numpy() for name in ("user", "item", "when")])
        assert without_seconds(tableless.train(arrays, scheme="full", config=CONFIG).results) == without_seconds(
            expected.results
        )

    def test_other_settings_are_those_of_the_command_too(self, file, ratings):
        test = ratings.head(100)
        test.write_parquet(file.parent / "test.parquet")
        ratings.tail(1100).write_csv(file.parent / "train.csv")
        settings = ["--scheme", "low-rank", "--budget", "3000", "--backbone", "mlp", "--embedding-dim", "8", *SETTINGS]
        arguments = [file.parent / "train.csv", "--test", file.parent / "test.parquet", "--recipe", "paper"]
        model = tableless.train(
            ratings.tail(1100),
            test=test.to_pandas(),
            scheme="low-rank",
            budget=3000,
            backbone="mlp",
            embedding_dim=8,
            config=TrainConfig(epochs=2, batch_size=256, seed=3, recipe="paper"),
        )
        assert without_seconds(model.results) == without_seconds(command("train", *arguments, *settings))

    def test_options_are_those_of_the_scheme(self, ratings):
        options = {"depth": 1, "num_hashes": 16}
        model = tableless.train(ratings, budget=6000, options=options, time_col="when", config=CONFIG)
        assert model.config["model"]["items"]["arguments"].items() >= options.items()

    def test_defaults_are_those_of_the_dataclasses(self):
        known = {each.name: each.default for kind in (DataConfig, ModelConfig, Plan) for each in fields(kind)}
        for function, names in ((tableless.train, 10), (tableless.compare, 11)):
            own = {name: value.default for name, value in inspect.signature(function).parameters.items()}
            shared = (own.keys() & known.keys()) - {"data", "options", "schemes"}
            assert {name: own[name] for name in shared} == {name: known[name] for name in shared}
            assert len(shared) >= names, "there are some"

    def test_what_a_run_writes_down_of_data_in_memory_tells_it_from_other_data(self, ratings, tmp_path):
        few = TrainConfig(epochs=1)
        tableless.train(ratings, scheme="bloom", config=few, out=tmp_path / "run")
        recorded = json.loads((tmp_path / "run" / "config.json").read_text())["data"]["data"]
        assert "/" not in recorded, "no temporary file, which is not there any more"
        again = tableless.train(ratings.clone(), scheme="bloom", config=few, out=tmp_path / "run", resume=True)
        assert again.config["data"]["data"] == recorded
        with pytest.raises(ValueError, match="was started with another data"):
            tableless.train(ratings.tail(1199), scheme="bloom", config=few, out=tmp_path / "run", resume=True)

    def test_progress_is_told_of_notes_reading_batches_and_epochs(self, ratings):
        events = []
        tableless.train(ratings, scheme="full", time_col="when", config=CONFIG, progress=events.append)
        assert {event.stage for event in events} - {"warning"} == {"note", "reading", "batch", "epoch"}
        assert any("time = when" in event.message for event in events), "which columns were taken"
        epochs = [event for event in events if event.stage == "epoch"]
        assert [event.done for event in epochs] == [1, 2]
        assert all(0 < event.validation_auc < 1 and event.loss > 0 for event in epochs)
        batches = [event for event in events if event.stage == "batch"]
        assert [event.done for event in batches] == [*range(1, batches[0].total + 1)] * 2

    def test_results_that_are_no_better_than_popularity_are_warned_about(self, ratings, caplog):
        weak = {"scheme": "full", "time_col": "when", "config": TrainConfig(epochs=1, learning_rate=1e-7)}
        events = []
        model = tableless.train(ratings, progress=events.append, **weak)
        assert [event.message for event in events if event.stage == "warning"] == [model.results["warning"]]
        assert caplog.messages == [], "who listens is told once"
        tableless.train(ratings, **weak)
        assert caplog.messages == [model.results["warning"]]
        assert "popularity alone" in caplog.text

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ([1, 2], "data is a list; give a path, a frame"),
            ((np.arange(3),), "data has 1 arrays; give those of users and items"),
            ({"user": [1, 2], "item": [1, 2, 3]}, "data cannot be written as a table .*the same length"),
            ({"user": ["a", 1], "item": [1, 2]}, "data cannot be written as a table .*one kind"),
            ({"who": [1, 2], "item": [1, 2]}, "none of its columns is known to mean the user"),
            (pl.DataFrame({"user": [1], "item": [2]}).head(0), "has no rows"),
            (pl.DataFrame({"user": [1, None], "item": [2, 3]}), "row 2: the user .* is missing"),
            (pa.table({"user": [0.5, 1.5], "item": [2, 3]}), "ids are integers or strings"),
        ],
    )
    def test_data_that_cannot_be_used_is_refused_in_a_sentence(self, data, message):
        with pytest.raises(ValueError, match=message):
            tableless.train(data)

    def test_what_makes_no_sense_together_is_refused(self, ratings, tmp_path):
        with pytest.raises(ValueError, match="resume goes on with the run in `out`"):
            tableless.train(ratings, resume=True)
        with pytest.raises(ValueError, match="and this data is in memory; leave it out"):
            tableless.train(ratings, cache_dir=tmp_path)
        with pytest.raises(ValueError, match="recipe is 'slow'; it must be fast or paper"):
            TrainConfig(recipe="slow")

    def test_the_temporary_directory_goes_with_the_model(self, ratings):
        model = tableless.train(ratings, scheme="full", config=TrainConfig(epochs=1))
        folder = model.directory.parent
        assert folder.exists()
        del model
        gc.collect()
        assert not folder.exists()


class TestModel:
    def test_saved_and_loaded_it_gives_the_same_answers(self, model, ratings, file, tmp_path):
        model.save(tmp_path / "mine")
        user = ratings["user"][5]
        loaded = tableless.load(tmp_path / "mine")
        assert loaded.results == model.results
        everything = model.recommend(user, count=1000, exclude_seen=False)
        assert loaded.recommend(user, count=1000) == everything
        assert tableless.load(tmp_path / "mine", interactions=file).recommend(user) == model.recommend(user)

    def test_saved_it_has_the_files_of_the_command(self, model, commanded, tmp_path):
        model.save(tmp_path / "mine")
        names = {path.name for path in commanded[1].iterdir()}
        assert {path.name for path in (tmp_path / "mine").iterdir()} == names >= {"config.json", "metrics.jsonl"}
        for name in ("model.safetensors", "items.parquet", "start.safetensors"):
            assert (tmp_path / "mine" / name).read_bytes() == (commanded[1] / name).read_bytes()

    def test_a_directory_that_holds_another_run_is_left_alone(self, model, commanded):
        before = (commanded[1] / "config.json").read_bytes()
        with pytest.raises(FileExistsError, match="holds a run already; give another directory"):
            model.save(commanded[1])
        assert (commanded[1] / "config.json").read_bytes() == before
        model.save(model.directory)  # it is there

    @pytest.mark.parametrize("split", ["leave-one-out", "global-time", "column"])
    def test_what_a_user_has_in_the_data_is_not_recommended_again(self, ratings, split):
        """Also if the first user is new at test time, so that rows are not in the order of ids."""
        first = pl.col("user") == ratings["user"].min()
        ratings = ratings.with_columns(when=pl.when(first).then(pl.col("when") + 10**6).otherwise(pl.col("when")))
        ratings = ratings.with_columns(split=pl.when(first).then(pl.lit("test")).otherwise(pl.lit("train")))
        model = tableless.train(ratings, scheme="bloom", time_col="when", split=split, config=TrainConfig(epochs=1))
        for user in ratings["user"].unique().sort()[[0, 1, 30, -1]]:
            had = set(ratings.filter(pl.col("user") == user)["item"])
            assert had.isdisjoint(row.item for row in model.recommend(user, count=1000))

    def test_but_what_is_in_the_test_set_may_be(self, ratings):
        train, test = ratings.tail(1100), ratings.head(100)
        model = tableless.train(train, test=test, scheme="bloom", config=TrainConfig(epochs=1))
        user, item = test["user"][0], test["item"][0]
        recommended = {row.item for row in model.recommend(user, count=1000)}
        assert item in recommended
        assert recommended.isdisjoint(train.filter(pl.col("user") == user)["item"])


class TestEvaluate:
    def test_a_model_knows_what_it_was_trained_on(self, model, commanded, file):
        again = tableless.evaluate(model)
        assert again == command("evaluate", commanded[1], "--data", file)
        assert again["auc"] == model.results["auc"]

    def test_a_test_set_is_measured_as_by_the_command(self, model, ratings, commanded, file):
        others = ratings.select(user="user", item=pl.col("item").reverse(), when="when").join(
            ratings, on=["user", "item"], how="anti"
        )
        path = file.parent / "others.parquet"
        others.write_parquet(path)
        expected = command("evaluate", commanded[1], "--data", file, "--test", path)
        assert tableless.evaluate(model, others.to_pandas()) == expected
        assert tableless.evaluate(commanded[1], others, data=ratings) == expected
        assert expected["held_out"] == others["user"].n_unique()

    def test_a_loaded_model_opens_no_file_that_only_its_directory_names(self, commanded, file):
        loaded = tableless.load(commanded[1])
        with pytest.raises(ValueError, match="opened only if you name it yourself: with data= and test= in Python"):
            tableless.evaluate(loaded)
        assert tableless.evaluate(loaded, data=file)["auc"] == commanded[0]["auc"]

    def test_a_test_set_may_have_new_users_and_items_only(self, model, ratings):
        new = [10**7, 10**7 + 1] if ratings["user"].dtype.is_integer() else ["a new one", "another"]
        results = tableless.evaluate(model, {"user": new, "item": new, "when": [0, 0]})
        assert results["evaluated"] == 2
        assert "known" not in results


class TestCompare:
    def test_the_rows_are_those_of_the_command(self, ratings, file, tmp_path):
        settings = ["--schemes", "full,low-rank", "--budgets", "1/4", "--seeds", "2", "--time-col", "when", *SETTINGS]
        expected = command("compare", file, *settings, "--out", tmp_path)["rows"]
        events = []
        rows = tableless.compare(
            ratings,
            schemes=["full", "low-rank"],
            budgets=["1/4"],
            seeds=2,
            time_col="when",
            config=CONFIG,
            progress=events.append,
        )
        assert without_seconds(rows) == without_seconds(expected)
        runs = [(event.done, event.total, event.message) for event in events if event.stage == "run"]
        assert runs[1] == (1, 4, "low-rank 1/4 gmf seed 3")

    def test_finished_runs_on_the_same_data_are_not_repeated(self, ratings, tmp_path):
        few = {"schemes": ["full"], "seeds": 1, "config": TrainConfig(epochs=1), "out": tmp_path}
        first = tableless.compare(ratings, **few)
        lines = (tmp_path / "results.jsonl").read_text()
        assert tableless.compare(ratings.clone(), **few) == first
        assert (tmp_path / "results.jsonl").read_text() == lines
        assert (tmp_path / "auc-by-size.png").exists()
        tableless.compare(ratings.tail(1199), **few)
        assert (tmp_path / "results.jsonl").read_text().count("\n") == 2, "other data, other runs"

    def test_names_are_checked_before_anything_is_trained(self, ratings):
        with pytest.raises(ValueError, match="schemes is 'dhe'; give a list"):
            tableless.compare(ratings, schemes="dhe")
        with pytest.raises(ValueError, match="no scheme is called 'dh'"):
            Plan(schemes=["full", "dh"], budgets=[], backbones=["gmf"], seeds=1)
        with pytest.raises(ValueError, match="no backbone is called 'mpl'"):
            Plan(schemes=["full"], budgets=[], backbones=["mpl"], seeds=1)


def test_a_model_that_was_not_saved_is_exported(model, ratings, tmp_path):
    report = tableless.export(model, tmp_path, format="torch")
    assert report.format == "torch"
    program = torch.export.load(tmp_path / "item_embedding.pt2").module()
    items = ratings["item"].head(5)
    assert torch.allclose(program(tableless.to_ids(items)), model.embed(items), atol=1e-6)


def test_what_contributing_imports_is_public():
    from tableless import embedding

    names = {"EmbeddingScheme", "HashFamily", "fit_to_budget", "normal", "resolve_budget", "seeded"}
    assert names <= set(embedding.__all__)
    assert set(tableless.__all__) <= set(dir(tableless))
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        tableless.trian  # noqa: B018


@pytest.mark.parametrize("wrong", [{"scheme": "dhee"}, {"backbone": "gfm"}, {"budget": "1/x"}])
def test_a_wrong_name_is_refused_before_the_data_is_read(wrong):
    with pytest.raises(ValueError, match=r"did you mean|not understood"):
        tableless.train("no-such-file.csv", **wrong)
