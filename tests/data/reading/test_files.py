import importlib
import sys

import polars as pl
import pytest

from tableless.data.interactions import DataError
from tableless.data.reading import files as reading_files
from tableless.data.reading import parquet as parquet_files
from tableless.data.reading.columns import ITEM_COLUMNS, Columns, find_column
from tableless.data.reading.files import find_files, sniff, stream_actions
from tableless.embedding.ids import to_ids
from tests.data.reading.small_files import batches_of, json_lines, read, separated, write


def columns_of(file, **given):
    return sniff([file], **given).columns


class TestColumns:
    @pytest.mark.parametrize(
        ("names", "expected"),
        [
            ("userId,movieId,rating,timestamp", ("userId", "movieId", "timestamp")),
            ("user_id,item_id,rating", ("user_id", "item_id", None)),
            ("reviewerID,asin,overall,unixReviewTime", ("reviewerID", "asin", "unixReviewTime")),
            ("rating,asin,parent_asin,user_id,timestamp", ("user_id", "parent_asin", "timestamp")),
            ("User-ID,ISBN,Book-Rating", ("User-ID", "ISBN", None)),
            ("timestamp,visitorid,event,itemid,transactionid", ("visitorid", "itemid", "timestamp")),
            (
                "user_id,session_id,session_start,click_article_id,click_timestamp",
                ("user_id", "click_article_id", "click_timestamp"),
            ),
            ("review_id,user_id,business_id,stars,date", ("user_id", "business_id", "date")),
            ("t_dat,customer_id,article_id,price", ("customer_id", "article_id", None)),
            ("USER,ITEM,TS", ("USER", "ITEM", "TS")),
        ],
    )
    def test_common_names_are_known(self, tmp_path, names, expected):
        file = write(tmp_path / "rows.csv", f"{names}\n{','.join('1' for _ in names.split(','))}\n")
        assert columns_of(file) == Columns(*expected)

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("1::1193::5::978300760", ("column_1", "column_2", "column_4")),
            ("196\t242\t3\t881250949", ("column_1", "column_2", "column_4")),
            ("A30TL5EWN6DFXT,120401325X,4.0,1399248000", ("column_1", "column_2", "column_4")),
            ("0001713353,A1C6M8LCIX4M6M,5.0,1123804800", ("column_2", "column_1", "column_4")),
            ("1,17,978300760", ("column_1", "column_2", "column_3")),
            ("1,17,5", ("column_1", "column_2", None)),
            ("1,17", ("column_1", "column_2", None)),
            ("1,17,5,good film", ("column_1", "column_2", None)),
        ],
    )
    def test_without_a_header_the_places_count(self, tmp_path, line, expected):
        file = write(tmp_path / "rows", f"{line}\n{line}\n")
        assert columns_of(file) == Columns(*expected)
        assert len(read(file)[0]) == 2

    def test_a_column_is_found_whatever_its_signs(self):
        assert find_column(["Title", "Item-ID"], ITEM_COLUMNS) == "Item-ID"
        assert find_column(["Title", "Item-ID"], ("name", "TITLE")) == "Title"
        assert find_column(["Title"], ITEM_COLUMNS) is None

    def test_names_that_are_given_come_first(self, tmp_path):
        file = write(tmp_path / "rows.csv", "user_id,item_id,buyer,thing,when,timestamp\n1,2,3,4,5,6\n")
        columns = columns_of(file, user_col="buyer", item_col="thing", time_col="when")
        assert columns == Columns("buyer", "thing", "when")
        assert columns_of(file, user_col="item_id", item_col="user_id") == Columns("item_id", "user_id", "timestamp")

    def test_a_given_name_makes_a_header_of_the_first_line(self, tmp_path):
        file = write(tmp_path / "rows.csv", "1,2\n5,6\n7,8\n")
        assert read(file, user_col="2", item_col="1")[0] == [6, 8]

    def test_times_can_be_left_out(self, tmp_path):
        file = write(tmp_path / "rows.csv", separated(","))
        assert columns_of(file, time_col="").time is None

    def test_the_choice_can_be_shown(self):
        assert str(Columns("userId", "movieId", None)) == "user = userId, item = movieId, time = none"

    def test_an_unknown_name_is_refused_with_those_there_are(self, tmp_path):
        file = write(tmp_path / "rows.csv", separated(","))
        with pytest.raises(
            DataError, match=r"rows.csv has no column 'when'; its columns are user_id, item_id, timestamp"
        ):
            columns_of(file, time_col="when")

    def test_names_that_say_nothing_are_refused_with_those_there_are(self, tmp_path):
        file = write(tmp_path / "rows.csv", "who,item_id\n1,2\n")
        with pytest.raises(DataError, match=r"rows.csv.*--user-col.*: who, item_id"):
            columns_of(file)

    def test_one_column_cannot_be_two_things(self, tmp_path):
        file = write(tmp_path / "rows.csv", separated(","))
        with pytest.raises(DataError, match="three columns"):
            columns_of(file, user_col="item_id", item_col="item_id")

    def test_a_column_that_is_there_twice_is_refused_if_it_is_read(self, tmp_path):
        file = write(tmp_path / "rows.csv", "user,item,note,note\n1,2,x,y\n")
        assert columns_of(file) == Columns("user", "item", None)
        with pytest.raises(DataError, match="several columns called 'item'"):
            columns_of(write(tmp_path / "rows.csv", "user,item,item\n1,2,3\n"))

    def test_names_are_shown_on_one_line(self, tmp_path):
        file = write(tmp_path / "rows.jsonl", '{"a\\nb": 1, "item": 2}\n')
        with pytest.raises(DataError) as refusal:
            columns_of(file)
        assert "'a\\nb', item" in str(refusal.value)
        assert "\n" not in str(refusal.value)


class TestOneLook:
    def test_what_was_decided_can_be_shown(self, tmp_path):
        file = write(tmp_path / "rows.csv", separated(","))
        assert str(sniff([file])) == f"{file}: user = user_id, item = item_id, time = timestamp"

    @pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.jsonl"])
    def test_a_file_that_was_looked_at_is_only_read_from_then_on(self, tmp_path, monkeypatch, name):
        file = write(tmp_path / name, json_lines() if "json" in name else separated(","))
        sniffed = sniff([file])
        monkeypatch.setattr(reading_files, "find_layout", None)
        assert [batch.users.tolist() for batch in batches_of(sniffed)] == [[1, 2, 1]]

    def test_each_of_several_files_is_looked_at_once(self, tmp_path, monkeypatch):
        looks, really = [], reading_files.find_layout

        def look(file, **options):
            looks.append(file.name)
            return really(file, **options)

        monkeypatch.setattr(reading_files, "find_layout", look)
        for name in ("a.parquet", "b.parquet"):
            pl.DataFrame({"user": [1], "item": [2]}).write_parquet(tmp_path / name)
        sniffed = sniff(find_files(tmp_path))
        assert [batch.items.tolist() for batch in batches_of(sniffed)] == [[2], [2]]
        assert looks == ["a.parquet", "b.parquet"]


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
        sniffed = sniff(find_files(directory))
        for rank in range(world_size):
            batches = list(stream_actions(sniffed, rank=rank, world_size=world_size, batch_size=batch_size))
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
            next(stream_actions(sniff([file]), batch_size=2))

    def test_a_missing_id_is_refused_with_its_place(self, directory):
        pl.DataFrame({"user": [1, None], "item": ["a", "b"]}).write_parquet(directory / "9.parquet")
        with pytest.raises(DataError, match=r"9.parquet, row 2: the user \(column 'user'\) is missing"):
            list(stream_actions(sniff(find_files(directory)), batch_size=16))

    def test_a_rank_that_is_none_is_refused(self, directory):
        with pytest.raises(DataError, match=r"0\.\.1, not 2"):
            next(stream_actions(sniff(find_files(directory)), rank=2, world_size=2, batch_size=4))


def test_without_polars_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.delitem(sys.modules, "tableless.data.reading")
    with pytest.raises(ImportError, match=r"pip install 'tableless\[data\]'"):
        importlib.import_module("tableless.data.reading")
