import polars as pl
import pytest

from tableless.data.interactions import DataError
from tableless.data.reading import parquet as parquet_files
from tableless.data.reading import text as text_files
from tableless.data.reading.files import find_files, sniff
from tests.data.reading.small_files import read, write


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
            ("user,item\n1,é\n1,ü\n1,caf".encode() + b"\xe9\n", "rows.csv, line 4 is not UTF-8"),
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

    def test_names_that_are_no_text_are_refused_without_a_trace_of_a_library(self, tmp_path, capfd):
        file = tmp_path / "rows.parquet"
        pl.DataFrame({"user": [1], "item": [{"inside": 2}]}).write_parquet(file)
        file.write_bytes(file.read_bytes().replace(b"inside", b"ins\xffde"))
        with pytest.raises(DataError) as error:
            read(file)
        assert "rows.parquet cannot be read: 'utf-8' codec can't decode byte 0xff" in one_line(error)
        assert not capfd.readouterr().err

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"user": [1, 2, None], "item": [1, 2, 3]}, "row 3: the user (column 'user') is missing"),
            ({"user": [1, 2], "item": ["a", None]}, "row 2: the item (column 'item') is missing"),
            ({"user": [1.0, 2.5], "item": [1, 2]}, "row 2: 2.5 (column 'user') is a number with a fraction"),
            ({"user": [1.0, 2.0**54], "item": [1, 2]}, "row 2: 1.8014398509481984e+16 (column 'user') is an id as a"),
            ({"user": [1.0, float("nan")], "item": [1, 2]}, "row 2: the user (column 'user') is missing"),
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
        monkeypatch.setattr(text_files, "_BLOCK_BYTES", 100)
        monkeypatch.setattr(parquet_files, "_BATCH_ROWS", 10)
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
        monkeypatch.setattr(text_files, "_BLOCK_BYTES", 100)
        monkeypatch.setattr(text_files, "_LONGEST_ROW", 1000)
        file = write(tmp_path / "rows.csv", 'user,item\n1,2\n1,"2\n' + "1,2\n" * 1000)
        with pytest.raises(DataError, match="line 3 does not end"):
            read(file)

    def test_a_missing_file_is_refused(self, tmp_path):
        with pytest.raises(DataError, match=r"gone.csv does not exist"):
            find_files(tmp_path / "gone.csv")
        with pytest.raises(DataError, match=r"gone.csv does not exist"):
            sniff([tmp_path / "gone.csv"])

    def test_a_directory_without_parquet_is_refused(self, tmp_path):
        with pytest.raises(DataError, match="directory without parquet files"):
            find_files(tmp_path)

    def test_files_with_ids_of_two_kinds_are_refused(self, tmp_path):
        files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
        pl.DataFrame({"user": [1], "item": [1]}).write_parquet(files[0])
        pl.DataFrame({"user": [1], "item": ["1"]}).write_parquet(files[1])
        with pytest.raises(DataError, match=r"b.parquet has integer users, string items"):
            sniff(files)

    def test_a_file_without_the_columns_of_the_first_is_refused(self, tmp_path):
        files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
        pl.DataFrame({"user": [1], "item": [1]}).write_parquet(files[0])
        pl.DataFrame({"user": [1], "thing": [1]}).write_parquet(files[1])
        with pytest.raises(DataError, match=r"b.parquet has no column 'item'"):
            sniff(files)
