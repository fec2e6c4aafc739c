import os
import shutil
import subprocess
import sys
import urllib.error
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tableless
from tableless.data import loading, sources
from tableless.data import prepare as preparation
from tableless.data.config import DataConfig, recorded_data
from tableless.data.interactions import DataError
from tableless.data.interactions_writer import keep_core
from tableless.data.loading import load_interactions, load_split
from tableless.data.splits import split_global_time, split_leave_one_out
from tableless.data.world import World
from tests.data.real_data import REAL_DATA, needs_real_data

PACKAGE = Path(tableless.__file__).parent
CSV = "userId,movieId,rating,timestamp\n1,10,5,3\n2,10,4,1\n1,20,3,2\n2,30,1,2\n1,30,1,4\n"


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    def refuse(url, **_):
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setattr(sources.urllib.request, "urlopen", refuse)
    monkeypatch.delenv("TABLELESS_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def ratings(tmp_path):
    file = tmp_path / "ratings.csv"
    file.write_text(CSV)
    return file


def same(one, other):
    arrays = ("user_ids", "item_ids", "starts", "items", "times")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)


class TestPaths:
    def test_a_path_is_read(self, ratings):
        loaded = load_interactions(str(ratings))
        assert loaded.user_ids.tolist() == [1, 2]
        assert loaded.item_ids[loaded.items].tolist() == [20, 10, 30, 10, 30]
        assert not isinstance(loaded.items, np.memmap)

    def test_what_was_chosen_is_told(self, ratings):
        told = []
        load_interactions(str(ratings), report=lambda *news: told.append(news))
        assert (f"{ratings}: user = userId, item = movieId, time = timestamp", None, None) in told

    def test_columns_can_be_named(self, ratings):
        loaded = load_interactions(str(ratings), user_col="movieId", item_col="userId", time_col="")
        assert loaded.user_ids.tolist() == [10, 20, 30]
        assert loaded.times is None

    def test_a_directory_of_parquet_files_is_one_dataset(self, tmp_path):
        for number in range(3):
            frame = pl.DataFrame({"user": [number, 9], "item": ["a", f"b{number}"]})
            frame.write_parquet(tmp_path / f"{number}.parquet")
        loaded = load_interactions(str(tmp_path))
        assert (loaded.num_users, loaded.num_items, loaded.num_actions) == (4, 4, 6)

    def test_only_the_core_is_kept(self, ratings):
        loaded = load_interactions(str(ratings), core=2)
        assert same(loaded, keep_core(load_interactions(str(ratings)), 2))
        assert loaded.item_ids.tolist() == [10, 30]

    def test_more_than_fits_is_mapped_and_its_files_are_gone(self, ratings, tmp_path, monkeypatch):
        monkeypatch.setattr(loading, "_FEW_ACTIONS", 2)
        monkeypatch.setattr(loading.tempfile, "tempdir", str(tmp_path / "scratch"))
        (tmp_path / "scratch").mkdir()
        loaded = load_interactions(str(ratings))
        assert isinstance(loaded.items, np.memmap)
        assert os.listdir(tmp_path / "scratch") == []
        assert loaded.item_ids[loaded.items].tolist() == [20, 10, 30, 10, 30]

    def test_an_unknown_name_is_refused_with_those_there_are(self):
        with pytest.raises(DataError, match=r"'movielens-2m' is neither a file.*world, movielens-100k, movielens-1m"):
            load_interactions("movielens-2m")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "is empty"),
            ("userId,movieId\n1,2\n1,3\n", "only one user"),
            ("userId,movieId\n1,2\n2,\n", "line 3: the item"),
            ("userId,movieId\n1,2\n2,3,4\n", "line 3 has 3 fields"),
            ("a,b\n1,2\n", "--user-col.*: a, b"),
        ],
    )
    @pytest.mark.parametrize("cached", [True, False])
    def test_a_bad_file_leaves_nothing_behind(self, tmp_path, monkeypatch, text, message, cached):
        file = tmp_path / "bad.csv"
        file.write_text(text)
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        monkeypatch.setattr(loading.tempfile, "tempdir", str(scratch))
        with pytest.raises(DataError, match=message) as error:
            load_interactions(str(file), cache_dir=scratch if cached else None)
        assert "\n" not in str(error.value)
        assert "bad.csv" in str(error.value)
        assert os.listdir(scratch) == []


class TestCache:
    @pytest.fixture
    def preparations(self, monkeypatch):
        """One entry for each time that files were really prepared."""
        calls, really = [], preparation.prepare

        def count(files, **options):
            calls.append(files)
            return really(files, **options)

        monkeypatch.setattr(preparation, "prepare", count)
        return calls

    def test_the_same_files_are_prepared_once(self, ratings, tmp_path, preparations):
        first = load_interactions(str(ratings), cache_dir=tmp_path / "cache")
        again = load_interactions(str(ratings), cache_dir=tmp_path / "cache")
        assert len(preparations) == 1
        assert same(first, again)
        assert isinstance(again.items, np.memmap)

    def test_changed_files_are_prepared_again(self, ratings, tmp_path, preparations):
        load_interactions(str(ratings), cache_dir=tmp_path / "cache")
        ratings.write_text(CSV + "3,10,1,1\n")
        assert load_interactions(str(ratings), cache_dir=tmp_path / "cache").num_users == 3
        os.utime(ratings, (1, 1))
        load_interactions(str(ratings), cache_dir=tmp_path / "cache")
        assert len(preparations) == 3

    def test_other_columns_are_prepared_again(self, ratings, tmp_path, preparations):
        load_interactions(str(ratings), cache_dir=tmp_path / "cache")
        assert load_interactions(str(ratings), cache_dir=tmp_path / "cache", time_col="").times is None
        assert len(preparations) == 2

    def test_a_core_is_kept_apart(self, ratings, tmp_path, preparations):
        core = load_interactions(str(ratings), cache_dir=tmp_path / "cache", core=2)
        whole = load_interactions(str(ratings), cache_dir=tmp_path / "cache")
        again = load_interactions(str(ratings), cache_dir=tmp_path / "cache", core=2)
        assert len(preparations) == 1
        assert (core.num_items, whole.num_items) == (2, 3)
        assert same(core, again)

    def test_a_killed_preparation_is_not_taken_for_a_finished_one(self, tmp_path):
        file = tmp_path / "rows.csv"
        file.write_text("user,item\n" + "".join(f"{number % 99},{number % 77}\n" for number in range(20_000)))
        program = (
            "import os, sys; from tableless.data import interactions_writer, loading; "
            "interactions_writer.InteractionsWriter.finish = lambda *_, **__: os._exit(9); "
            "loading.load_interactions(sys.argv[1], cache_dir=sys.argv[2])"
        )
        cache = tmp_path / "cache"
        killed = subprocess.run([sys.executable, "-c", program, str(file), str(cache)], check=False)
        assert killed.returncode == 9
        assert all(name.startswith(".") for name in os.listdir(cache))
        assert load_interactions(str(file), cache_dir=cache).num_actions == 20_000


class TestWorld:
    def test_the_world_is_a_dataset(self):
        loaded = load_interactions("world:users=100,items=60,actions=900")
        assert same(loaded, World(100, 60, 900).interactions())

    def test_it_has_a_core_like_any_other(self):
        assert load_interactions("world:users=100,items=60,actions=1500", core=9).num_users < 100


def test_neither_names_nor_the_world_need_polars():
    program = (
        "import sys; sys.modules['polars'] = None; "
        "from tableless.data import loading, splits, world; "
        "whole = loading.load_interactions('world:users=50,items=40,actions=400'); "
        "print(len(splits.split_leave_one_out(whole).test_users))\n"
        "try: loading.load_interactions('movielens-1m')\n"
        "except ImportError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[0] == "50"
    assert "pip install 'tableless[data]'" in run.stdout.splitlines()[1]


@pytest.mark.parametrize("split", ["magic", "column:", "columns", "", "Column"])
def test_another_split_is_refused(split):
    with pytest.raises(ValueError, match=r"it must be leave-one-out, global-time, column .* or column:NAME"):
        DataConfig("x.csv", split=split)


@pytest.mark.parametrize("split", ["global-time", "column", "column:fold"])
def test_a_test_file_is_the_split(split):
    with pytest.raises(ValueError, match=f"test.csv is the split; split {split} cannot"):
        DataConfig("x.csv", split=split, test="test.csv")


@pytest.mark.parametrize("given", [{"split": "column"}, {"test": "test.csv"}])
def test_a_given_split_has_no_core(given):
    with pytest.raises(ValueError, match="core 5 cannot be used with a given split"):
        DataConfig("x.csv", core=5, **given)


def test_what_was_recorded_before_there_were_test_files_is_the_same():
    before = {"data": "x.csv", "data_dir": None, "user_col": None, "item_col": None, "time_col": None}
    before |= {"core": 0, "split": "leave-one-out", "split_seed": 0}
    assert recorded_data({"data": before}) == DataConfig("x.csv")
    assert DataConfig("x.csv").settings() == before


def test_a_test_file_is_recorded():
    config = DataConfig("x.csv", test="test.csv")
    assert recorded_data({"data": config.settings()}) == config
    with pytest.raises(ValueError, match="test is 7"):
        recorded_data({"data": {"data": "x.csv", "test": 7}})


@needs_real_data
class TestRealData:
    @pytest.mark.parametrize(
        ("name", "actions", "users", "items"),
        [
            ("movielens-1m", 1_000_209, 6040, 3706),
            ("bookcrossing", 1_149_780, 105_283, 340_556),
            ("globo", 2_988_181, 322_897, 46_033),
            ("amazon-instant-video", 523_653, 390_399, 21_334),
            ("movietweetings", 141_695, 21_081, 12_611),
        ],
    )
    def test_every_dataset_is_read_whole(self, name, actions, users, items):
        loaded = load_interactions(name, data_dir=REAL_DATA)
        assert (loaded.num_actions, loaded.num_users, loaded.num_items) == (actions, users, items)
        assert (loaded.times is None) == (name == "bookcrossing")
        split = split_leave_one_out(loaded)
        assert len(split.test_users) == len(split.validation_users) > 0
        if loaded.times is not None:
            assert split_global_time(loaded).num_known_users < users

    def test_book_crossing_has_the_core_the_literature_has(self, tmp_path):
        core = load_interactions("bookcrossing", data_dir=REAL_DATA, core=5, cache_dir=tmp_path)
        assert (core.num_actions, core.num_users, core.num_items) == (585_579, 15_798, 38_093)

    def test_text_of_movielens_is_the_same_as_its_parquet(self, tmp_path):
        frame = pl.read_parquet(REAL_DATA / "ml-1m.parquet")
        (tmp_path / "ml-1m").mkdir()
        rows = frame.select(
            pl.format("{}::{}::{}::{}", "user_id", "item_id", pl.col("rating").cast(pl.Int64), "timestamp")
        )
        rows.write_csv(tmp_path / "ml-1m" / "ratings.dat", include_header=False)
        text = load_interactions("movielens-1m", data_dir=tmp_path)
        assert same(text, load_interactions("movielens-1m", data_dir=REAL_DATA))
        shutil.rmtree(tmp_path / "ml-1m")


@needs_real_data
def test_the_split_of_gowalla_is_as_published():
    split = load_split(DataConfig("gowalla", data_dir=str(REAL_DATA), split="column"))
    assert len(split.test_users) == 217_242
    assert (split.train.num_users, split.train.num_items) == (29_858, 40_981)
    assert (split.num_known_users, split.num_known_items) == (29_858, 40_981)
    assert len(np.unique(split.test_users)) == len(np.unique(split.validation_users)) == 29_858
    assert split.train.num_actions + len(split.validation_users) == 810_128
    width = split.train.num_items
    train = split.train.user_rows().astype(np.int64) * width + split.train.items
    for users, items in ((split.test_users, split.test_items), (split.validation_users, split.validation_items)):
        assert not np.isin(users.astype(np.int64) * width + items, train).any()
    raw = pl.read_parquet(REAL_DATA / "gowalla.parquet").filter(pl.col("split") == "test").sort("user_id", "item_id")
    users, items = split.train.user_ids[split.test_users], split.train.item_ids[split.test_items]
    assert sorted(zip(users.tolist(), items.tolist(), strict=True)) == raw.select("user_id", "item_id").rows()
