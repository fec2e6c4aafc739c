import gzip
import importlib
import json
import sys

import numpy as np
import polars as pl
import pytest

from tableless.embedding.ids import to_ids
from tableless.recommender import reading
from tableless.recommender.interactions import DataError
from tableless.recommender.reading import (
    ITEM_COLUMNS,
    Columns,
    Kinds,
    KindsChanged,
    find_column,
    find_files,
    first_kinds,
    guess_columns,
    read_actions,
    stream_actions,
)

ROWS = [(1, "a", 10), (2, "b", 20), (1, "c", 30)]


def write(path, text):
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def read(file, **given):
    """All rows of a file: users, items (raw) and times."""
    columns = guess_columns(file, **given)
    kinds = first_kinds([file], columns)
    while True:
        try:
            batches = list(read_actions(file, columns=columns, kinds=kinds))
        except KindsChanged as changed:
            kinds = changed.kinds
            continue
        return (
            [user for batch in batches for user in batch.users.tolist()],
            [item for batch in batches for item in batch.item_names.to_list()],
            None if columns.time is None else [time for batch in batches for time in batch.times.tolist()],
        )


def separated(separator, header=True):
    lines = [("user_id", "item_id", "timestamp")] * header + ROWS
    return "".join(separator.join(map(str, line)) + "\n" for line in lines)


def json_lines():
    return "".join(json.dumps({"user_id": u, "text": "x", "item_id": i, "timestamp": t}) + "\n" for u, i, t in ROWS)


class TestFormats:
    @pytest.mark.parametrize("gz", ["", ".gz"])
    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("rows.csv", separated(",")),
            ("rows.tsv", separated("\t")),
            ("rows.txt", separated(";")),
            ("rows.psv", separated("|")),
            ("rows.dat", separated("::")),
            ("rows.jsonl", json_lines()),
            ("no-ending", separated(",")),
        ],
    )
    def test_the_content_tells_the_format(self, tmp_path, name, text, gz):
        file = write(tmp_path / f"{name}{gz}", text)
        assert read(file) == ([1, 2, 1], ["a", "b", "c"], [10, 20, 30])

    def test_parquet(self, tmp_path):
        file = tmp_path / "rows.parquet"
        pl.DataFrame(ROWS, schema=["user_id", "item_id", "timestamp"], orient="row").write_parquet(file)
        assert read(file) == ([1, 2, 1], ["a", "b", "c"], [10, 20, 30])

    @pytest.mark.parametrize(
        "text",
        [
            "\ufeffuser_id,item_id,timestamp\n1,a,10\n2,b,20\n1,c,30\n",
            "user_id,item_id,timestamp\r\n1,a,10\r\n2,b,20\r\n1,c,30\r\n",
            "\nuser_id,item_id,timestamp\n\n1,a,10\n\n\n2,b,20\n1,c,30\n\n",
            "user_id,item_id,timestamp\n1,a,10\n2,b,20\n1,c,30",
            'user_id,item_id,timestamp\n1,"a",10\n"2",b,20\n1,c,30\n',
            'user_id,item_id,text,timestamp\n1,a,"two\n\nlines, ""so""",10\n2,b,,20\n1,c,x,30\n',
            "user_id,item_id,timestamp,user_id\n1,a,10,7\n2,b,20,8\n1,c,30,9\n",
        ],
        ids=["byte order mark", "CRLF", "blank lines", "no last line feed", "quotes", "line feed in quotes", "twice"],
    )
    def test_csv_as_it_comes(self, tmp_path, text):
        assert read(write(tmp_path / "rows.csv", text)) == ([1, 2, 1], ["a", "b", "c"], [10, 20, 30])

    def test_a_byte_order_mark_without_a_header_is_not_part_of_an_id(self, tmp_path):
        file = write(tmp_path / "rows.csv", "\ufeff1,7,5.0,978300760\n2,8,5.0,978300761\n")
        assert read(file)[0] == [1, 2]

    @pytest.mark.parametrize("block_bytes", [1, 16, 64, 1000])
    @pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.jsonl", "rows.dat"])
    def test_the_size_of_blocks_does_not_matter(self, tmp_path, monkeypatch, block_bytes, name):
        rows = [(user, f"i{user % 7}", 100 + user) for user in range(50)]
        if "csv" in name:
            text = "user,item,text,time\n" + "".join(f'{u},{i},"a ""b""\nc",{t}\n' for u, i, t in rows)
        elif "dat" in name:
            text = "".join(f"{u}::{i}::5::{t}\n" for u, i, t in rows)
        else:
            text = "".join(json.dumps({"user": u, "item": i, "time": t}) + "\n" for u, i, t in rows)
        file = write(tmp_path / name, text)
        monkeypatch.setattr(reading, "_BLOCK_BYTES", block_bytes)
        users, items, times = read(file)
        assert list(zip(users, items, times, strict=True)) == rows

    def test_a_name_is_not_a_pattern(self, tmp_path):
        for name, user in (("rows[1].parquet", 5), ("rows1.parquet", 6)):
            pl.DataFrame({"user": [user], "item": [1]}).write_parquet(tmp_path / name)
        assert read(tmp_path / "rows[1].parquet")[0] == [5]

    def test_a_directory_is_its_parquet_files_by_name(self, tmp_path):
        for name in ("b.parquet", "a.parquet", "c.csv"):
            (tmp_path / name).touch()
        assert [file.name for file in find_files(tmp_path)] == ["a.parquet", "b.parquet"]


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
        assert guess_columns(file) == Columns(*expected)

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
        assert guess_columns(file) == Columns(*expected)
        assert len(read(file)[0]) == 2

    def test_a_column_is_found_whatever_its_signs(self):
        assert find_column(["Title", "Item-ID"], ITEM_COLUMNS) == "Item-ID"
        assert find_column(["Title", "Item-ID"], ("name", "TITLE")) == "Title"
        assert find_column(["Title"], ITEM_COLUMNS) is None

    def test_names_that_are_given_come_first(self, tmp_path):
        file = write(tmp_path / "rows.csv", "user_id,item_id,buyer,thing,when,timestamp\n1,2,3,4,5,6\n")
        columns = guess_columns(file, user_col="buyer", item_col="thing", time_col="when")
        assert columns == Columns("buyer", "thing", "when")
        assert guess_columns(file, user_col="item_id", item_col="user_id") == Columns("item_id", "user_id", "timestamp")

    def test_a_given_name_makes_a_header_of_the_first_line(self, tmp_path):
        file = write(tmp_path / "rows.csv", "1,2\n5,6\n7,8\n")
        assert read(file, user_col="2", item_col="1")[0] == [6, 8]

    def test_times_can_be_left_out(self, tmp_path):
        file = write(tmp_path / "rows.csv", separated(","))
        assert guess_columns(file, time_col="").time is None

    def test_the_choice_can_be_shown(self):
        assert str(Columns("userId", "movieId", None)) == "user = userId, item = movieId, time = none"

    def test_an_unknown_name_is_refused_with_those_there_are(self, tmp_path):
        file = write(tmp_path / "rows.csv", separated(","))
        with pytest.raises(
            DataError, match=r"rows.csv has no column 'when'; its columns are user_id, item_id, timestamp"
        ):
            guess_columns(file, time_col="when")

    def test_names_that_say_nothing_are_refused_with_those_there_are(self, tmp_path):
        file = write(tmp_path / "rows.csv", "who,item_id\n1,2\n")
        with pytest.raises(DataError, match=r"rows.csv.*--user-col.*: who, item_id"):
            guess_columns(file)

    def test_one_column_cannot_be_two_things(self, tmp_path):
        file = write(tmp_path / "rows.csv", separated(","))
        with pytest.raises(DataError, match="three columns"):
            guess_columns(file, user_col="item_id", item_col="item_id")


class TestIds:
    def test_text_of_plain_integers_is_integers(self, tmp_path):
        file = write(tmp_path / "rows.csv", "user,item\n-5,9223372036854775807\n0,7\n")
        assert first_kinds([file], guess_columns(file)) == Kinds("integer", "integer", None)
        columns = guess_columns(file)
        [batch] = read_actions(file, columns=columns, kinds=first_kinds([file], columns))
        assert batch.users.tolist() == [-5, 0]
        assert batch.items.tolist() == [2**63 - 1, 7]

    @pytest.mark.parametrize("odd", ["007", "x", "1.0", "+7", " 7", "9223372036854775808"])
    def test_one_value_that_is_no_plain_integer_makes_them_all_strings(self, tmp_path, odd):
        file = write(tmp_path / "rows.csv", f"user,item\n1,7\n2,{odd}\n")
        columns = guess_columns(file)
        with pytest.raises(KindsChanged) as changed:
            list(read_actions(file, columns=columns, kinds=first_kinds([file], columns)))
        assert changed.value.kinds == Kinds("integer", "string", None)
        [batch] = read_actions(file, columns=columns, kinds=changed.value.kinds)
        np.testing.assert_array_equal(batch.items, to_ids(["7", odd]))

    def test_json_tells_strings_from_integers(self, tmp_path):
        file = write(tmp_path / "rows.jsonl", '{"user": 1, "item": "7"}\n{"user": 2, "item": "8"}\n')
        assert first_kinds([file], guess_columns(file)) == Kinds("integer", "string", None)

    @pytest.mark.parametrize("dtype", [pl.Int8, pl.Int64, pl.UInt32, pl.UInt64])
    def test_integers_of_parquet_are_themselves(self, tmp_path, dtype):
        file = tmp_path / "rows.parquet"
        pl.DataFrame({"user": [1, 2], "item": pl.Series([5, 6], dtype=dtype)}).write_parquet(file)
        [batch] = read_actions(file, columns=Columns("user", "item", None), kinds=Kinds("integer", "integer", None))
        assert batch.items.tolist() == [5, 6]

    @pytest.mark.parametrize("dtype", [pl.String, pl.Binary, pl.Categorical])
    def test_strings_of_parquet_are_hashed(self, tmp_path, dtype):
        file = tmp_path / "rows.parquet"
        pl.DataFrame({"user": [1, 2], "item": pl.Series(["a", "ü"]).cast(dtype)}).write_parquet(file)
        assert first_kinds([file], Columns("user", "item", None)).item == "string"
        [batch] = read_actions(file, columns=Columns("user", "item", None), kinds=Kinds("integer", "string", None))
        np.testing.assert_array_equal(batch.items, to_ids(["a", "ü"]))
        assert batch.item_names.to_list() == ["a", "ü"]


class TestTimes:
    def times(self, tmp_path, *texts):
        file = write(tmp_path / "rows.csv", "user,item,time\n" + "".join(f"1,2,{text}\n" for text in texts))
        return read(file)[2]

    def test_integers_stay_exact(self, tmp_path):
        assert self.times(tmp_path, "1506826828020123456", "-1") == [1506826828020123456, -1]

    def test_fractions_stay_to_be_sorted_by(self, tmp_path):
        assert self.times(tmp_path, "10", "10.75", "1e3") == [10, 10.75, 1000]

    @pytest.mark.parametrize("text", ["1970-01-02 00:00:01", "1970-01-02T00:00:01", "1970-01-02T02:00:01+02:00"])
    def test_dates_become_microseconds(self, tmp_path, text):
        assert self.times(tmp_path, text, text) == [86_401_000_000] * 2

    @pytest.mark.parametrize("dtype", [pl.Date, pl.Datetime("ms"), pl.Datetime("ns"), pl.Datetime("us", "UTC")])
    def test_dates_of_parquet_become_microseconds(self, tmp_path, dtype):
        file = tmp_path / "rows.parquet"
        days = pl.Series([0, 1], dtype=pl.Int32).cast(pl.Date).cast(dtype)
        pl.DataFrame({"user": [1, 2], "item": [3, 4], "date": days}).write_parquet(file)
        assert read(file)[2] == [0, 86_400_000_000]

    @pytest.mark.parametrize("dtype", [pl.Int32, pl.UInt64, pl.Float32, pl.String])
    def test_numbers_of_parquet_keep_their_unit(self, tmp_path, dtype):
        file = tmp_path / "rows.parquet"
        pl.DataFrame({"user": [1, 2], "item": [3, 4], "time": pl.Series([5, 6]).cast(dtype)}).write_parquet(file)
        assert read(file)[2] == [5, 6]


def one_line(error):
    message = str(error.value)
    assert "\n" not in message
    return message


class TestBadFiles:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "rows.csv is empty"),
            ("\n\n", "rows.csv is empty"),
            ("user,item,time\n", "rows.csv has a header and no rows"),
            ("user,item,time\n1,2,3\n1,2,3,4\n", "rows.csv, line 3 has 4 fields, but the first line has 3"),
            ("user,item,time\n1,2,3\n\n1,2\n", "rows.csv, line 4 has 2 fields, but the first line has 3"),
            ("user,item,time\n1,2,3\n1,,3\n", "rows.csv, line 3: the item (column 'item') is missing"),
            ('user,item,time\n1,2,3\n"",2,3\n', "rows.csv, line 3: the user (column 'user') is missing"),
            ("user,item,time\n1,2,3\n1,2,\n", "rows.csv, line 3: the time (column 'time') is missing"),
            ("user,item,time\n1,2,3.5\n1,2,NaN\n", "rows.csv, line 3: 'NaN' (column 'time') is not a time"),
            ("user,item,time\n1,2,3.5\n1,2,inf\n", "rows.csv, line 3: 'inf' (column 'time') is not a time"),
            ("user,item,time\n1,2,3\n1,2,soon\n", "rows.csv, line 3: 'soon' (column 'time') is not a time"),
            ("user,item,time\n1,2,1e30\n", "rows.csv, line 2: '1e30' (column 'time') is not a time"),
            ("user,item,time\n1,2,09 13, 2009\n", "rows.csv, line 2 has 4 fields"),
            ("user,item,time\n1,2,2009-13-13\n", "rows.csv, line 2: '2009-13-13' (column 'time') is not a time"),
            (b"user,item\n1,2\n1,caf\xe9\n", "rows.csv, line 3 is not UTF-8"),
            ('user,item\n1,2\n1,"2\n1,3\n', "rows.csv, line 3 has a quote that is not closed"),
            ('user,item\n1,2\n1,2"x\n1,3\n', "rows.csv, line 3 has a quote that is not closed"),
            ("one word\n", "rows.csv is not a known format: CSV"),
            (b"\x00\x01,\x02\n", "rows.csv is not a known format: CSV"),
            ('[{"user": 1}]', "rows.csv is one JSON array"),
            (b"PK\x03\x04rest", "rows.csv is a zip archive"),
            (b"PAR1 but no parquet", "rows.csv cannot be read"),
            (b"\x1f\x8bno gzip", "rows.csv cannot be read"),
            ('{"user": 1, "item": 2}\n{"user": 1, "item"\n', "rows.csv, line 2 is not a JSON object"),
            ('{"user": 1, "item": 2}\n\n[1, 2]\n', "rows.csv, line 3 is not a JSON object"),
            ('{"user": 1, "item": 2}\n{"user": 1}\n', "rows.csv, line 2: the item (column 'item') is missing"),
            ('{"user": 1, "item": 2}\n{"user": null, "item": 2}\n', "rows.csv, line 2: the user (column 'user') is"),
            ('{"user"\n', "rows.csv, line 1 is not JSON"),
        ],
    )
    def test_text_is_refused_in_one_line_that_says_where(self, tmp_path, text, message):
        file = write(tmp_path / "rows.csv", text)
        with pytest.raises(DataError) as error:
            read(file)
        assert message in one_line(error)

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"user": [1, 2, None], "item": [1, 2, 3]}, "row 3: the user (column 'user') is missing"),
            ({"user": [1, 2], "item": ["a", None]}, "row 2: the item (column 'item') is missing"),
            ({"user": [1.0, 2.0], "item": [1, 2]}, "column 'user' is Float64, but ids are integers or strings"),
            ({"user": [1, 2], "item": [[1], [2]]}, "column 'item' is List(Int64), but ids are integers or strings"),
            ({"user": [1, 2], "item": [1, 2], "time": [1.5, float("nan")]}, "row 2: nan (column 'time') is not a time"),
            ({"user": [1, 2], "item": [1, 2], "time": [1, None]}, "row 2: the time (column 'time') is missing"),
            (
                {"user": [1, 2], "item": [1, 2], "time": [True, False]},
                "column 'time' is Boolean, which cannot be a time",
            ),
        ],
    )
    def test_parquet_is_refused_in_one_line_that_says_where(self, tmp_path, columns, message):
        file = tmp_path / "rows.parquet"
        pl.DataFrame(columns).write_parquet(file)
        with pytest.raises(DataError) as error:
            read(file)
        assert message in one_line(error)
        assert "rows.parquet" in one_line(error)

    def test_a_row_far_down_is_counted_right(self, tmp_path, monkeypatch):
        monkeypatch.setattr(reading, "_BLOCK_BYTES", 100)
        monkeypatch.setattr(reading, "_BATCH_ROWS", 10)
        text = "user,item\n" + "1,2\n" * 500 + "1,\n"
        with pytest.raises(DataError, match="line 502"):
            read(write(tmp_path / "rows.csv", text))
        pl.DataFrame({"user": [1] * 500 + [None], "item": [2] * 501}).write_parquet(tmp_path / "rows.parquet")
        with pytest.raises(DataError, match="row 501"):
            read(tmp_path / "rows.parquet")

    def test_a_truncated_gzip_is_refused(self, tmp_path):
        file = write(tmp_path / "rows.csv.gz", "user,item\n" + "".join(f"{i},{i * i}\n" for i in range(100_000)))
        file.write_bytes(file.read_bytes()[:-1000])
        with pytest.raises(DataError, match=r"rows.csv.gz cannot be read") as error:
            read(file)
        one_line(error)

    def test_a_truncated_parquet_is_refused(self, tmp_path):
        file = tmp_path / "rows.parquet"
        pl.DataFrame({"user": range(10_000), "item": range(10_000)}).write_parquet(file)
        file.write_bytes(file.read_bytes()[:5000])
        with pytest.raises(DataError, match=r"rows.parquet cannot be read") as error:
            read(file)
        one_line(error)

    def test_a_quote_that_is_never_closed_does_not_fill_the_memory(self, tmp_path, monkeypatch):
        monkeypatch.setattr(reading, "_BLOCK_BYTES", 100)
        monkeypatch.setattr(reading, "_LONGEST_ROW", 1000)
        file = write(tmp_path / "rows.csv", 'user,item\n1,2\n1,"2\n' + "1,2\n" * 1000)
        with pytest.raises(DataError, match="line 3 does not end"):
            read(file)

    def test_a_missing_file_is_refused(self, tmp_path):
        with pytest.raises(DataError, match=r"gone.csv does not exist"):
            find_files(tmp_path / "gone.csv")
        with pytest.raises(DataError, match=r"gone.csv does not exist"):
            guess_columns(tmp_path / "gone.csv")

    def test_a_directory_without_parquet_is_refused(self, tmp_path):
        with pytest.raises(DataError, match="directory without parquet files"):
            find_files(tmp_path)

    def test_files_with_ids_of_two_kinds_are_refused(self, tmp_path):
        files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
        pl.DataFrame({"user": [1], "item": [1]}).write_parquet(files[0])
        pl.DataFrame({"user": [1], "item": ["1"]}).write_parquet(files[1])
        with pytest.raises(DataError, match=r"b.parquet has integer users, string items"):
            first_kinds(files, Columns("user", "item", None))

    def test_a_file_without_the_columns_of_the_first_is_refused(self, tmp_path):
        file = tmp_path / "b.parquet"
        pl.DataFrame({"user": [1], "thing": [1]}).write_parquet(file)
        with pytest.raises(DataError, match=r"b.parquet has no column 'item'"):
            first_kinds([file], Columns("user", "item", None))


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
        monkeypatch.setattr(reading, "_BATCH_ROWS", 20)
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
    monkeypatch.delitem(sys.modules, "tableless.recommender.reading")
    with pytest.raises(ImportError, match=r"pip install 'tableless\[data\]'"):
        importlib.import_module("tableless.recommender.reading")
