import os
import time
import tracemalloc

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableless.data import prepare as preparation
from tableless.data.interactions import DataError
from tableless.data.prepare import prepare
from tableless.data.reading import parquet as parquet_files
from tableless.data.reading import text as text_files
from tableless.data.reading.files import sniff
from tableless.embedding.ids import to_ids
from tests.counted_calls import counted_calls
from tests.data.real_data import REAL_DATA, needs_real_data


def write(directory, rows, columns=("user", "item", "time")):
    file = directory / "rows.parquet"
    pl.DataFrame(rows, schema=list(columns), orient="row").write_parquet(file)
    return file


def prepared(tmp_path_factory_or_path, file, time_col=None, **options):
    directory = tmp_path_factory_or_path / f"prepared-{time.monotonic_ns()}"
    directory.mkdir()
    files = file if isinstance(file, list) else [file]
    return prepare(sniff(files, time_col=time_col), directory=directory, **options)


def actions(interactions):
    """(user id, item id, time) in the order of the arrays."""
    users = interactions.user_ids[interactions.user_rows()].tolist()
    items = interactions.item_ids[interactions.items].tolist()
    times = [None] * len(users) if interactions.times is None else interactions.times.tolist()
    return list(zip(users, items, times, strict=True))


def same(one, other):
    arrays = ("user_ids", "item_ids", "starts", "items", "times")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)


class TestOrder:
    rows = ((7, 1, 5), (3, 2, 9), (7, 4, 2), (3, 9, 1), (7, 2, 2))

    def test_each_user_stands_together_in_time_order(self, tmp_path):
        result = prepared(tmp_path, write(tmp_path, self.rows))
        assert actions(result) == [(3, 9, 1), (3, 2, 9), (7, 4, 2), (7, 2, 2), (7, 1, 5)]
        assert result.user_ids.tolist() == [3, 7]
        assert result.item_ids.tolist() == [1, 2, 4, 9]
        assert result.starts.tolist() == [0, 2, 5]
        assert (result.items.dtype, result.times.dtype) == (np.int32, np.int64)

    def test_without_times_the_order_of_the_file_stays(self, tmp_path):
        result = prepared(tmp_path, write(tmp_path, self.rows), time_col="")
        assert result.times is None
        assert [action[:2] for action in actions(result)] == [(3, 2), (3, 9), (7, 1), (7, 4), (7, 2)]

    def test_fractions_of_time_count_for_the_order(self, tmp_path):
        result = prepared(tmp_path, write(tmp_path, [(1, 1, 5.9), (1, 2, 5.1), (2, 1, -0.5)]))
        assert actions(result) == [(1, 2, 5), (1, 1, 5), (2, 1, -1)]

    def test_large_times_stay_exact(self, tmp_path):
        result = prepared(tmp_path, write(tmp_path, [(1, 1, 2**60 + 1), (1, 2, 2**60), (2, 1, -(2**60) - 1)]))
        assert result.times.tolist() == [2**60, 2**60 + 1, -(2**60) - 1]

    def test_files_follow_each_other(self, tmp_path):
        files = []
        for name, rows in (("a", [(1, 1, 0), (2, 2, 0)]), ("b", [(1, 3, 0), (3, 1, 0)])):
            files.append(tmp_path / f"{name}.parquet")
            pl.DataFrame(rows, schema=["user", "item", "time"], orient="row").write_parquet(files[-1])
        assert actions(prepared(tmp_path, files)) == [(1, 1, 0), (1, 3, 0), (2, 2, 0), (3, 1, 0)]


class TestBoundedMemory:
    @settings(deadline=None, max_examples=40)
    @given(
        st.lists(st.tuples(st.integers(-3, 9), st.integers(0, 9), st.integers(0, 4)), min_size=4, max_size=120),
        st.integers(1, 30),
        st.booleans(),
    )
    def test_parts_give_what_one_sort_gives(self, tmp_path_factory, rows, rows_in_memory, timed):
        rows = [(0, 0, 0), (1, 1, 0), *rows]
        directory = tmp_path_factory.mktemp("data")
        time_col = "time" if timed else ""
        file = write(directory, rows)
        in_parts = prepared(directory, file, time_col, rows_in_memory=rows_in_memory)
        assert same(in_parts, prepared(directory, file, time_col))
        expected = sorted(rows, key=lambda row: (row[0], row[2]) if timed else row[0])
        assert actions(in_parts) == [row if timed else (*row[:2], None) for row in expected]

    def test_small_chunks_and_many_parts_give_the_same(self, tmp_path, monkeypatch):
        generator = np.random.default_rng(0)
        rows = {"user": generator.integers(0, 300, 5000), "item": generator.integers(0, 80, 5000).astype(str)}
        file = tmp_path / "rows.parquet"
        pl.DataFrame(rows | {"time": generator.integers(0, 50, 5000)}).write_parquet(file)
        at_once = prepared(tmp_path, file)
        monkeypatch.setattr(preparation, "_CHUNK_ROWS", 64)
        monkeypatch.setattr(preparation, "_MOST_PARTS", 4)
        monkeypatch.setattr(parquet_files, "_BATCH_ROWS", 500)
        in_parts = prepared(tmp_path, file, rows_in_memory=100)
        assert same(at_once, in_parts)
        assert at_once.item_names.to_list() == in_parts.item_names.to_list()

    @pytest.mark.parametrize("order", ["sorted", "reversed", "shuffled"])
    def test_a_user_with_most_of_the_actions_is_no_trouble(self, tmp_path, order):
        users = np.repeat([1, 2, 3, 4, 5], [3, 900, 2, 50, 1])
        users = {"sorted": users, "reversed": users[::-1], "shuffled": np.random.default_rng(0).permutation(users)}[
            order
        ]
        file = write(tmp_path, [(int(user), number % 50, number) for number, user in enumerate(users)])
        assert same(prepared(tmp_path, file, rows_in_memory=20), prepared(tmp_path, file))

    def test_memory_does_not_grow_with_the_rows(self, tmp_path, monkeypatch):
        generator = np.random.default_rng(0)
        file = tmp_path / "rows.parquet"
        columns = {"user": 900, "item": 500, "time": 10**9}
        frame = pl.DataFrame({name: generator.integers(0, most, 1_000_000) for name, most in columns.items()})
        frame.write_parquet(file, row_group_size=20_000)
        monkeypatch.setattr(preparation, "_CHUNK_ROWS", 20_000)
        monkeypatch.setattr(parquet_files, "_BATCH_ROWS", 20_000)
        tracemalloc.start()
        try:
            prepared(tmp_path, file, rows_in_memory=50_000)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 10e6  # all rows together are 24 MB

    def test_nothing_but_the_arrays_stays(self, tmp_path):
        file = write(tmp_path, [(user % 9, user % 7, 0) for user in range(200)])
        directory = tmp_path / "prepared"
        directory.mkdir()
        prepare(sniff([file]), directory=directory, rows_in_memory=10)
        names = ["interactions.json", "item_ids.npy", "items.npy", "starts.npy", "times.npy", "user_ids.npy"]
        assert sorted(os.listdir(directory)) == names


class TestIds:
    def test_strings_are_hashed_and_items_keep_their_names(self, tmp_path, monkeypatch):
        monkeypatch.setattr(parquet_files, "_BATCH_ROWS", 2)
        rows = [("ann", "x", 1), ("bob", "ÿ", 1), ("ann", "zebra, a longer name", 2), ("bob", "x", 2), ("cy", "0", 0)]
        result = prepared(tmp_path, write(tmp_path, rows))
        assert (result.user_kind, result.item_kind) == ("string", "string")
        np.testing.assert_array_equal(to_ids(result.item_names), result.item_ids)
        assert set(result.item_names) == {"x", "ÿ", "zebra, a longer name", "0"}
        assert sorted(to_ids(["ann", "bob", "cy"]).tolist()) == result.user_ids.tolist()

    def test_integers_need_no_names(self, tmp_path):
        result = prepared(tmp_path, write(tmp_path, TestOrder.rows))
        assert result.item_names is None
        assert (result.user_kind, result.item_kind) == ("integer", "integer")

    @pytest.mark.parametrize("odd_user", ["5", "x"])
    def test_text_that_is_not_all_integers_is_read_again_as_strings(self, tmp_path, monkeypatch, odd_user):
        monkeypatch.setattr(text_files, "_BLOCK_BYTES", 200)
        lines = [f"{number % 10},{number % 7},{number}" for number in range(100)] + [f"{odd_user},007,1.5"]
        file = tmp_path / "rows.csv"
        file.write_text("user,item,time\n" + "\n".join(lines))
        result = prepared(tmp_path, file, rows_in_memory=30)
        assert result.num_actions == 101
        assert (result.user_kind, result.item_kind) == ("integer" if odd_user == "5" else "string", "string")
        assert sorted(result.item_names) == ["0", "007", "1", "2", "3", "4", "5", "6"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ([(1, 1, 1), (1, 2, 2)], "rows.parquet has only one user (column 'user')"),
            ([(1, 1, 1), (2, 1, 2)], "rows.parquet has only one item (column 'item')"),
        ],
    )
    def test_one_user_or_item_is_not_enough(self, tmp_path, rows, message):
        with pytest.raises(DataError) as error:
            prepared(tmp_path, write(tmp_path, rows))
        assert message in str(error.value)

    def test_no_rows_are_not_enough(self, tmp_path):
        file = tmp_path / "rows.parquet"
        pl.DataFrame(schema={"user": pl.Int64, "item": pl.Int64, "time": pl.Int64}).write_parquet(file)
        with pytest.raises(DataError, match=r"rows.parquet has no rows"):
            prepared(tmp_path, file)


def test_progress_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_files, "_BATCH_ROWS", 3)
    told = []
    prepared(tmp_path, write(tmp_path, TestOrder.rows), report=lambda *news: told.append(news))
    assert [done for what, done, _ in told if what == "reading rows.parquet"] == [3, 5]


@needs_real_data
def test_movielens_in_parts_equals_movielens_at_once(tmp_path):
    file = REAL_DATA / "ml-1m.parquet"
    with counted_calls() as calls:
        at_once = prepared(tmp_path, file)
    assert calls.total < 100_000, "a tenth of the rows: nothing is done row by row in Python"
    assert (at_once.num_users, at_once.num_items, at_once.num_actions) == (6040, 3706, 1_000_209)
    assert same(at_once, prepared(tmp_path, file, rows_in_memory=100_000))
