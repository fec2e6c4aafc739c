import importlib
import sys

import polars as pl
import pytest

from tableless.data.interactions import DataError
from tableless.data.reading import parquet_rows as parquet_files
from tableless.data.reading.actions import stream_actions
from tableless.data.reading.columns import Columns
from tableless.data.sources import find_files
from tableless.embedding.ids import to_ids
from tests.data.reading.small_files import separated, write


def test_a_directory_is_its_parquet_files_by_name(tmp_path):
    for name in ("b.parquet", "a.parquet", "c.csv"):
        (tmp_path / name).touch()
    assert [file.name for file in find_files(tmp_path)] == ["a.parquet", "b.parquet"]


class TestStream:
    @pytest.fixture
    def directory(self, tmp_path):
        for number, size in enumerate([100, 7, 60]):
            rows = range(1000 * number, 1000 * number + size)
            frame = pl.DataFrame({"user": rows, "item": [f"i{row}" for row in rows]})
            frame.write_parquet(tmp_path / f"{number}.parquet", row_group_size=16)
        return tmp_path

    @pytest.mark.parametrize("world_size", [1, 2, 3, 5, 40])
    @pytest.mark.parametrize("batch_size", [1, 10, 64, 1000])
    def test_the_ranks_share_all_rows_evenly(self, directory, monkeypatch, world_size, batch_size):
        monkeypatch.setattr(parquet_files, "_BATCH_ROWS", 20)
        users, items, counts = [], [], []
        for rank in range(world_size):
            batches = list(
                stream_actions(
                    directory,
                    columns=Columns("user", "item", None),
                    rank=rank,
                    world_size=world_size,
                    batch_size=batch_size,
                )
            )
            assert all(len(batch[0]) == len(batch[1]) == batch_size for batch in batches[:-1])
            assert 0 < len(batches[-1][0]) <= batch_size
            users += [user for batch in batches for user in batch[0].tolist()]
            items += [item for batch in batches for item in batch[1].tolist()]
            counts.append(sum(len(batch[0]) for batch in batches))
        assert users == [*range(100), *range(1000, 1007), *range(2000, 2060)]
        assert items == to_ids([f"i{user}" for user in users]).tolist()
        assert max(counts) - min(counts) <= 1

    def test_other_formats_are_refused(self, tmp_path):
        file = write(tmp_path / "rows.csv", separated(","))
        with pytest.raises(DataError, match="only parquet can be streamed"):
            next(stream_actions(file, columns=Columns("user_id", "item_id", None), batch_size=2))

    def test_a_missing_id_is_refused_with_its_place(self, directory):
        pl.DataFrame({"user": [1, None], "item": ["a", "b"]}).write_parquet(directory / "9.parquet")
        with pytest.raises(DataError, match=r"9.parquet, row 2: the user \(column 'user'\) is missing"):
            list(stream_actions(directory, columns=Columns("user", "item", None), batch_size=16))

    def test_a_rank_that_is_none_is_refused(self, directory):
        with pytest.raises(DataError, match=r"0\.\.1, not 2"):
            next(stream_actions(directory, columns=Columns("u", "i", None), rank=2, world_size=2, batch_size=4))


def test_without_polars_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.delitem(sys.modules, "tableless.data.reading")
    with pytest.raises(ImportError, match=r"pip install 'tableless\[data\]'"):
        importlib.import_module("tableless.data.reading")
