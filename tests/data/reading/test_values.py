from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from tableless.data.reading.files import sniff
from tableless.data.reading.values import Kinds, KindsChanged
from tableless.embedding.ids import to_ids
from tests.data.reading.small_files import batches_of, read, write


class TestIds:
    def test_text_of_plain_integers_is_integers(self, tmp_path):
        file = write(tmp_path / "rows.csv", "user,item\n-5,9223372036854775807\n0,7\n")
        sniffed = sniff([file])
        assert sniffed.kinds == Kinds("integer", "integer", None)
        [batch] = batches_of(sniffed)
        assert batch.users.tolist() == [-5, 0]
        assert batch.items.tolist() == [2**63 - 1, 7]

    @pytest.mark.parametrize("odd", ["007", "x", "1e3", "+7", " 7", "9223372036854775808"])
    def test_one_value_that_is_no_plain_integer_makes_them_all_strings(self, tmp_path, odd):
        file = write(tmp_path / "rows.csv", f"user,item\n1,7\n2,{odd}\n")
        sniffed = sniff([file])
        with pytest.raises(KindsChanged) as changed:
            batches_of(sniffed)
        assert changed.value.kinds == Kinds("integer", "string", None)
        [batch] = batches_of(replace(sniffed, kinds=changed.value.kinds))
        np.testing.assert_array_equal(batch.items, to_ids(["7", odd]))

    def test_json_tells_strings_from_integers(self, tmp_path):
        file = write(tmp_path / "rows.jsonl", '{"user": 1, "item": "7"}\n{"user": 2, "item": "8"}\n')
        assert sniff([file]).kinds == Kinds("integer", "string", None)

    @pytest.mark.parametrize("dtype", [pl.Int8, pl.Int64, pl.UInt32, pl.UInt64])
    def test_integers_of_parquet_are_themselves(self, tmp_path, dtype):
        file = tmp_path / "rows.parquet"
        pl.DataFrame({"user": [1, 2], "item": pl.Series([5, 6], dtype=dtype)}).write_parquet(file)
        sniffed = sniff([file])
        assert sniffed.kinds == Kinds("integer", "integer", None)
        [batch] = batches_of(sniffed)
        assert batch.items.tolist() == [5, 6]

    @pytest.mark.parametrize("dtype", [pl.String, pl.Binary, pl.Categorical])
    def test_strings_of_parquet_are_hashed(self, tmp_path, dtype):
        file = tmp_path / "rows.parquet"
        pl.DataFrame({"user": [1, 2], "item": pl.Series(["a", "ü"]).cast(dtype)}).write_parquet(file)
        sniffed = sniff([file])
        assert sniffed.kinds == Kinds("integer", "string", None)
        [batch] = batches_of(sniffed)
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
