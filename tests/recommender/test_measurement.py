"""Measuring a run again: which files are opened, and which actions are the test."""

import json
import shutil

import numpy as np
import polars as pl
import pytest

from tableless.data.config import DataConfig
from tableless.data.loading import load_split
from tableless.recommender import measurement
from tableless.recommender.evaluation import measure_scorer
from tableless.recommender.measurement import measure_run
from tableless.recommender.run_directory import RunDirectory
from tableless.recommender.runs import ModelConfig, train_and_measure
from tableless.recommender.training import TrainConfig
from tests.data.tiny import small_world

TRAINING = TrainConfig(epochs=1, batch_size=256)


def raw_pairs():
    """The pairs of the small world, with ids that are no row numbers."""
    world = small_world().interactions()
    return np.unique(np.stack([1000 - 3 * world.user_rows(), 7 * world.items + 50], axis=1), axis=0)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """data.csv, and given.parquet with one other item for each of some users, a new user and a new item among them."""
    folder = tmp_path_factory.mktemp("files")
    pairs = raw_pairs()
    taken = np.random.default_rng(0).permutation(len(pairs))[:40]
    rest = np.delete(pairs, taken, axis=0)
    pl.DataFrame(rest, schema=["user", "item"]).write_csv(folder / "data.csv")
    _, first = np.unique(pairs[taken][:, 0], return_index=True)
    given = np.concatenate([pairs[taken][first], [[2000, 50], [1000, 5]]])
    pl.DataFrame(given, schema=["uid", "asin"]).write_parquet(folder / "given.parquet")
    return folder


def train(data, out, scheme="dhe"):
    budget = "1/1" if scheme == "full" else "6000"
    train_and_measure(data, ModelConfig(scheme=scheme, budget=budget), TRAINING, load_split(data), out=out)
    return RunDirectory(out).read()


@pytest.fixture(scope="module")
def runs(files):
    """Run directories of a table and a network, trained on data.csv alone. They are read, and never written to."""
    for scheme in ("full", "dhe"):
        train(DataConfig(str(files / "data.csv")), files / scheme, scheme)
    return files


@pytest.fixture(params=["full", "dhe"])
def trained(runs, request):
    return RunDirectory(runs / request.param).read()


def write_data(directory, **data):
    """Says in the config of a run that it was trained on other data."""
    config = json.loads((directory / "config.json").read_text())
    config["data"] |= data
    (directory / "config.json").write_text(json.dumps(config))
    return RunDirectory(directory).read()


class TestPaths:
    @pytest.fixture
    def stranger(self, runs, tmp_path):
        return shutil.copytree(runs / "dhe", tmp_path / "run")

    @pytest.fixture
    def opened(self, monkeypatch):
        """The configs of what would be opened."""
        configs = []

        def keep(config):
            configs.append(config)
            raise InterruptedError

        monkeypatch.setattr(measurement, "load_split", keep)
        return configs

    @pytest.mark.parametrize("path", ["/etc/passwd", "ratings.csv", "../my file.csv"])
    def test_a_path_that_only_the_run_names_is_not_opened(self, stranger, opened, path):
        quoted = f"'{path}'" if " " in path else path
        with pytest.raises(ValueError, match=f"only if you name it yourself: .*evaluate {stranger} --data {quoted}$"):
            measure_run(write_data(stranger, data=path))
        assert opened == []

    def test_neither_is_a_test_file(self, stranger, opened):
        strange = write_data(stranger, data="movielens-1m", test="/etc/passwd")
        for named in ({}, {"data": "mine.csv"}):
            with pytest.raises(ValueError, match=f"--data {named.get('data', 'movielens-1m')} --test /etc/passwd$"):
                measure_run(strange, **named)
        assert opened == []

    def test_what_the_message_shows_is_one_line(self, stranger, opened):
        with pytest.raises(ValueError, match="name it yourself") as error:
            measure_run(write_data(stranger, data="a\n\x1b[2Jb"))
        assert str(error.value).isprintable()

    @pytest.mark.parametrize("name", ["movielens-1m", "Gowalla", "world:users=200,items=120,actions=6000"])
    def test_a_known_name_is_no_path_but_where_it_lies_is(self, stranger, opened, name, tmp_path):
        for folder in (None, tmp_path):
            with pytest.raises(InterruptedError):
                measure_run(write_data(stranger, data=name, data_dir="/etc"), data_dir=folder)
        assert [(config.data, config.data_dir) for config in opened] == [(name, None), (name, str(tmp_path))]

    def test_what_the_user_names_is_opened_with_the_columns_and_the_split_of_the_run(self, stranger, opened):
        strange = write_data(
            stranger, data="/etc/passwd", user_col="u", item_col="i", time_col="t", split="column:fold"
        )
        for named in ({}, {"user_col": "who", "item_col": "what", "time_col": ""}):
            with pytest.raises(InterruptedError):
                measure_run(strange, data="mine.csv", **named)
        assert [(config.data, config.split) for config in opened] == [("mine.csv", "column:fold")] * 2
        columns = [(config.user_col, config.item_col, config.time_col) for config in opened]
        assert columns == [("u", "i", "t"), ("who", "what", "")]


class TestTestFile:
    def test_its_actions_are_the_test_and_all_others_are_left_out(self, trained, files, monkeypatch):
        measured = []

        def keep(scores, split, **options):
            measured.append(split)
            return measure_scorer(scores, split, **options)

        monkeypatch.setattr("tableless.recommender.measurement.measure_scorer", keep)
        results = measure_run(trained, data=str(files / "data.csv"), test=str(files / "given.parquet"))
        split = measured[0]
        given = pl.read_parquet(files / "given.parquet").rows()
        ids = zip(split.train.user_ids[split.test_users], split.train.item_ids[split.test_items], strict=True)
        assert sorted((int(user), int(item)) for user, item in ids) == sorted(given)
        data = pl.read_csv(files / "data.csv")
        assert split.train.num_actions + len(split.validation_users) == len(data)
        assert (split.train.num_users - split.num_known_users, split.train.num_items - split.num_known_items) == (1, 1)
        assert results["held_out"] == len({user for user, _ in given})
        assert results["unanswered"] == (0 if trained.model.answers_new_ids else 2)
        assert not any(name.startswith("validation") for name in results)  # trained on, some of it

    def test_a_run_that_was_trained_with_it_is_measured_as_then(self, files, tmp_path):
        data = DataConfig(str(files / "data.csv"), test=str(files / "given.parquet"))
        trained = train(data, tmp_path / "run", "full")
        before = json.loads((tmp_path / "run" / "results.json").read_text())
        after = measure_run(trained, data=data.data, test=data.test)
        assert {name: before[name] for name in after} == after
        with pytest.raises(ValueError, match="--test"):
            measure_run(trained, data=data.data)

    def test_the_split_column_of_a_run_is_used_again(self, files, tmp_path):
        rest = pl.read_csv(files / "data.csv").with_columns(split=pl.lit("train"))
        given = pl.read_parquet(files / "given.parquet").with_columns(split=pl.lit("test"))
        both = pl.concat([rest, given.rename({"uid": "user", "asin": "item"})])
        both.write_csv(tmp_path / "both.csv")
        trained = train(DataConfig(str(tmp_path / "both.csv"), split="column"), tmp_path / "run", "full")
        before = json.loads((tmp_path / "run" / "results.json").read_text())
        after = measure_run(trained, data=str(tmp_path / "both.csv"))
        assert {name: before[name] for name in after} == after
        assert after["held_out"] == given["uid"].n_unique()


@pytest.mark.parametrize("side", ["user", "item"])
def test_a_table_is_not_measured_on_other_users_or_items(runs, files, tmp_path, side):
    trained = RunDirectory(runs / "full").read()
    other = pl.read_csv(files / "data.csv").with_columns(pl.col(side) + 1)
    other.write_csv(tmp_path / "other.csv")
    with pytest.raises(ValueError, match=f"a row for each {side} of its own .* other {side}s"):
        measure_run(trained, data=str(tmp_path / "other.csv"))
