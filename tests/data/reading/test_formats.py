import json

import polars as pl
import pytest

from tableless.data.reading import text as text_files
from tests.data.reading.small_files import ROWS, json_lines, read, separated, write


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
        ],
        ids=["byte order mark", "CRLF", "blank lines", "no last line feed", "quotes", "line feed in quotes"],
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
        monkeypatch.setattr(text_files, "_BLOCK_BYTES", block_bytes)
        users, items, times = read(file)
        assert list(zip(users, items, times, strict=True)) == rows

    def test_a_name_is_not_a_pattern(self, tmp_path):
        for name, user in (("rows[1].parquet", 5), ("rows1.parquet", 6)):
            pl.DataFrame({"user": [user], "item": [1]}).write_parquet(tmp_path / name)
        assert read(tmp_path / "rows[1].parquet")[0] == [5]
