"""Files as people have them: missing values, floats, ratings, dates of all countries, and other encodings."""

import polars as pl
import pytest

import tableless
from tableless.data.config import DataConfig, RowRules, recorded_data
from tableless.data.interactions import DataError
from tableless.data.loading import load_interactions, load_split
from tableless.data.reading import text as text_files
from tests.data.reading.small_files import write

DROP = RowRules(drop_missing=True)


def load(file, **options):
    """The interactions of a file, and what was said about it."""
    said = []
    loaded = load_interactions(
        str(file), report=lambda note, done, _: said.append(note) if done is None else None, **options
    )
    return loaded, said[1:]  # the first says which columns were taken


def csv(tmp_path, text, encoding="utf-8"):
    return write(tmp_path / "rows.csv", text.encode(encoding))


class TestMissing:
    TEXT = "user,item,time\n,7,1\n1,7,2\n2,8,3\n2,,4\n,9,5\n1,8,\n"

    def test_rows_are_dropped_and_counted(self, tmp_path):
        loaded, said = load(csv(tmp_path, self.TEXT), rules=DROP)
        assert (loaded.user_ids.tolist(), loaded.item_ids.tolist()) == ([1, 2], [7, 8])
        assert loaded.user_kind == "integer", "though the first row has none"
        expected = ["dropped 2 rows without a user", "dropped 1 row without an item", "dropped 1 row without a time"]
        assert said == expected

    @pytest.mark.parametrize("missing", [None, float("nan")])
    def test_of_parquet_too_and_floats_that_are_whole_are_integers(self, tmp_path, missing):
        file = tmp_path / "rows.parquet"
        pl.DataFrame({"user": [17850.0, missing, 2.0], "item": ["a", "b", "c"]}).write_parquet(file)
        loaded, said = load(file, rules=DROP)
        assert (loaded.user_ids.tolist(), loaded.user_kind) == ([2, 17850], "integer")
        assert said == ["dropped 1 row without a user"]

    def test_of_json_too_and_the_first_value_tells_the_kind(self, tmp_path):
        lines = '{"user": null, "item": 1}\n{"user": "7", "item": 1}\n{"user": "8", "item": 2}\n'
        loaded, _ = load(write(tmp_path / "rows.jsonl", lines), rules=DROP)
        assert (loaded.num_users, loaded.user_kind) == (2, "string")

    def test_the_refusal_names_the_option(self, tmp_path):
        with pytest.raises(DataError, match=r"line 2: the user .* is missing; .*--drop-missing.* drop_missing=True"):
            load(csv(tmp_path, self.TEXT))

    def test_the_place_of_a_fault_is_counted_with_the_dropped_rows(self, tmp_path):
        with pytest.raises(DataError, match="line 4: 'soon'"):
            load(csv(tmp_path, "user,item,time\n1,7,1\n,7,2\n2,8,soon\n"), rules=DROP)

    def test_where_nothing_is_left_that_is_said(self, tmp_path):
        with pytest.raises(DataError, match=r"no rows left \(dropped 2 rows without a user\)"):
            load(csv(tmp_path, "user,item\n,7\n,8\n"), rules=DROP)

    def test_a_frame_is_taken_as_pandas_makes_it(self):
        rows = {"user": [number // 9 for number in range(270)], "item": [number**2 % 89 for number in range(270)]}
        frame = pl.DataFrame(rows).with_columns(pl.when(pl.col("user") > 0).then("user").cast(pl.Float64).alias("user"))
        few = tableless.TrainConfig(epochs=1)
        model = tableless.train(frame.to_pandas(), scheme="full", config=few, drop_missing=True)
        assert len(model.recommend(3, count=2)) == 2
        assert tableless.evaluate(model)["auc"] == model.results["auc"]
        with pytest.raises(ValueError, match="drop_missing=True"):
            tableless.train(frame, scheme="full", config=few)


class TestWholeNumbers:
    def test_text_with_a_point_and_zeros_is_an_integer(self, tmp_path):
        loaded, _ = load(csv(tmp_path, "user,item\n17850.0,5\n17850,6.0\n-3.00,5\n"))
        assert (loaded.user_ids.tolist(), loaded.user_kind) == ([-3, 17850], "integer")
        assert (loaded.item_ids.tolist(), loaded.item_kind) == ([5, 6], "integer")

    def test_beside_a_word_it_is_a_string(self, tmp_path):
        loaded, _ = load(csv(tmp_path, "user,item\n1,5.0\n2,1.5\n2,guest\n"))
        assert sorted(loaded.item_names) == ["1.5", "5.0", "guest"]

    @pytest.mark.parametrize("rows", ["1,7\n2,1.5\n", "1,1.5\n2,7\n"])
    def test_a_fraction_is_refused(self, tmp_path, rows):
        with pytest.raises(DataError, match=r"'1.5' \(column 'item'\) is a number with a fraction"):
            load(csv(tmp_path, "user,item\n" + rows))


class TestRatings:
    TEXT = "user,item,rating\n1,7,5\n1,8,3.5\n2,8,4\n2,7,1\n2,9,\n"

    def test_only_rows_with_enough_count(self, tmp_path):
        loaded, said = load(csv(tmp_path, self.TEXT), rules=RowRules(drop_missing=True, min_rating=4))
        assert (loaded.num_actions, loaded.item_ids.tolist()) == (2, [7, 8])
        assert said == ["dropped 1 row without a rating", "dropped 2 rows with a rating below 4"]

    def test_a_row_without_a_rating_is_a_row_with_something_missing(self, tmp_path):
        with pytest.raises(DataError, match=r"line 6: the rating \(column 'rating'\) is missing; .*--drop-missing"):
            load(csv(tmp_path, self.TEXT), rules=RowRules(min_rating=4))

    def test_the_column_can_be_named(self, tmp_path):
        text = "user;item;liking\n1;7;4,5\n1;8;4,0\n2;8;5\n"
        loaded, said = load(csv(tmp_path, text), rules=RowRules(rating_col="liking", min_rating=4.5))
        assert (loaded.num_actions, said) == (2, ["dropped 1 row with a rating below 4.5"])

    def test_without_a_header_it_is_the_third_column(self, tmp_path):
        rows = ["1::7::5::978300760", "2::8::1::978300761", "2::7::4::978300762", "1::8::4::978300763"]
        loaded, _ = load(csv(tmp_path, "\n".join(rows)), rules=RowRules(min_rating=4))
        assert loaded.num_actions == 3

    @pytest.mark.parametrize("name", ["rating", "Score", "stars"])
    def test_one_that_is_not_used_is_mentioned_once(self, tmp_path, name):
        loaded, said = load(csv(tmp_path, f"user,item,{name}\n1,7,5\n2,8,1\n"))
        assert loaded.num_actions == 2
        [remark] = said
        assert f"there is a column `{name}`; every row counts as a choice. --min-rating 4" in remark

    def test_what_cannot_be_meant_is_refused(self, tmp_path):
        file = csv(tmp_path, "user,item\n1,7\n2,8\n")
        with pytest.raises(DataError, match=r"known to mean the rating.*--rating-col"):
            load(file, rules=RowRules(min_rating=4))
        with pytest.raises(DataError, match=r"'great' .* is not a rating"):
            load(csv(tmp_path, "user,item,rating\n1,7,great\n"), rules=RowRules(min_rating=4))
        with pytest.raises(ValueError, match=r"--rating-col .*stars changes nothing alone; .*--min-rating"):
            DataConfig("x.csv", rating_col="stars")
        with pytest.raises(DataError, match="world has no ratings"):
            load("world", rules=RowRules(min_rating=4))


class TestDates:
    DAY = 86_400_000_000

    def times(self, tmp_path, *dates, **options):
        text = "user,item,InvoiceDate\n" + "".join(f"1,{row},{date}\n2,9,{date}\n" for row, date in enumerate(dates))
        loaded, said = load(csv(tmp_path, text), **options)
        return loaded.times[: loaded.starts[1]].tolist(), said

    @pytest.mark.parametrize("block_bytes", [40, 1 << 20])
    def test_the_whole_column_decides(self, tmp_path, monkeypatch, block_bytes):
        monkeypatch.setattr(text_files, "_BLOCK_BYTES", block_bytes)
        times, said = self.times(tmp_path, "1/2/1970 8:26", *["1/3/1970 0:00"] * 50, "1/31/1970 23:59:01")
        assert times[0] == self.DAY + (8 * 60 + 26) * 60_000_000
        assert times[-1] == 30 * self.DAY + (24 * 3600 - 59) * 1_000_000
        assert said == ["the dates of `InvoiceDate` are read with the month first, as in '1/31/1970 23:59:01'"]

    @pytest.mark.parametrize("mark", ["/", ".", "-"])
    def test_the_day_first(self, tmp_path, mark):
        times, said = self.times(tmp_path, *(date.replace("/", mark) for date in ("2/1/1970", "31/1/1970")))
        assert times == [self.DAY, 30 * self.DAY]
        assert "with the day first" in said[0]

    def test_short_years_and_halves_of_a_day(self, tmp_path):
        times, _ = self.times(tmp_path, "1/2/70 12:00 AM", "1/2/70 1:00 PM", "12/31/99")
        assert times[:2] == [self.DAY, self.DAY + 13 * 3_600_000_000]
        assert times[2] == 10_956 * self.DAY

    def test_what_stays_open_is_asked(self, tmp_path):
        dates = "1/2/1970 8:26", "3/4/1970 8:26"
        with pytest.raises(DataError, match=r"'InvoiceDate': .*day or with the month first.*--date-format dmy"):
            self.times(tmp_path, *dates)
        for given, day in (("mdy", 1), ("dmy", 31), ("%m/%d/%Y %H:%M", 1)):
            times, said = self.times(tmp_path, *dates, rules=RowRules(date_format=given))
            assert (times[0] // self.DAY, said) == (day, [])

    def test_rows_that_contradict_each_other_are_refused(self, tmp_path):
        with pytest.raises(DataError, match=r"line 4: '1/31/1970' .* is not a time with the day first"):
            self.times(tmp_path, "31/1/1970", "1/31/1970")

    def test_a_format_that_does_not_fit_is_refused(self, tmp_path):
        with pytest.raises(DataError, match=r"'1/2/1970' .* is not a time"):
            self.times(tmp_path, "1/2/1970", rules=RowRules(date_format="%Y-%m-%d"))
        with pytest.raises(ValueError, match=r"--date-format .*'us'; it must be dmy"):
            RowRules(date_format="us")
        with pytest.raises(DataError, match=r"known to mean the time, which --date-format"):
            load(csv(tmp_path, "user,item\n1,2\n"), rules=RowRules(date_format="dmy"))

    def test_a_time_that_is_not_used_is_mentioned(self, tmp_path):
        _, said = load(csv(tmp_path, "user,item,order_date\n1,2,2020-01-01\n2,3,2020-01-01\n"))
        assert said == [
            "`order_date` looks like a time, and is not used; --time-col order_date would order the actions"
        ]
        _, said = load(csv(tmp_path, "user,item,bought\n1,2,2020-01-01\n2,3,2020-01-01\n"))
        assert "`bought` looks like a time" in said[0]
        _, said = load(csv(tmp_path, "user,item,order_date\n1,2,2020-01-01\n2,3,2020-01-01\n"), time_col="")
        assert said == []


class TestEncoding:
    @pytest.mark.parametrize("before", [0, 100])
    def test_latin_1_is_read_and_said(self, tmp_path, monkeypatch, before):
        monkeypatch.setattr(text_files, "_BLOCK_BYTES", 64)
        text = "user;item\n" + "1;2\n" * before + "1;café\n2;für\n"
        loaded, said = load(csv(tmp_path, text, "latin-1"))
        assert {"café", "für"} <= set(loaded.item_names)
        assert said == [f"{tmp_path / 'rows.csv'} is not UTF-8, and is read as latin-1"]

    def test_names_of_columns_too(self, tmp_path):
        loaded, _ = load(csv(tmp_path, "user;item;größe\n1;2;3\n2;3;4\n", "latin-1"), time_col="größe")
        assert loaded.times.tolist() == [3, 4]


class TestNames:
    def test_those_of_online_retail_are_guessed(self, tmp_path):
        text = "InvoiceNo,StockCode,Description,InvoiceDate,CustomerID\n1,a,x,2010-12-01,7\n1,b,x,2010-12-01,8\n"
        loaded, _ = load(csv(tmp_path, text))
        assert (loaded.user_ids.tolist(), sorted(loaded.item_names)) == ([7, 8], ["a", "b"])
        assert loaded.times is not None

    def test_when_is_a_time(self, tmp_path):
        assert load(csv(tmp_path, "user,item,when\n1,2,3\n2,3,4\n"))[0].times is not None


class TestSaid:
    def test_repeated_pairs_are_counted(self, tmp_path):
        text = "user,item,time\n" + "".join(f"{user},{item},{item}\n" for user in (1, 2) for item in (1, 2, 3, 3, 2, 4))
        for split, kept in (("leave-one-out", "last"), ("global-time", "first")):
            said = []
            file = str(csv(tmp_path, text))
            load_split(DataConfig(file, split=split), report=lambda note, *_, said=said: said.append(note))
            assert f"dropped 4 repeated actions: of each pair of user and item only the {kept} counts" in said

    def test_a_cache_says_the_same_again_and_tells_options_apart(self, tmp_path):
        file = csv(tmp_path, "user,item,rating,date\n1,7,5,1/2/2010\n,7,5,1/2/2010\n2,8,1,1/13/2010\n2,9,5,1/2/2010\n")
        options = [DROP, RowRules(drop_missing=True, min_rating=2), RowRules(drop_missing=True, date_format="mdy")]
        for number, rules in enumerate(options, 1):
            first, again = (load(file, rules=rules, cache_dir=tmp_path / "cache") for _ in range(2))
            assert first[1] == again[1] != []
            assert first[0].num_actions == again[0].num_actions == (2 if number == 2 else 3)
            assert len(list((tmp_path / "cache").iterdir())) == number


def test_a_run_records_the_options_that_were_given():
    config = DataConfig("x.csv", drop_missing=True, rating_col="stars", min_rating=4, date_format="dmy")
    assert recorded_data({"data": config.settings()}) == config
    assert DataConfig("x.csv", min_rating=4).settings().keys() - DataConfig("x.csv").settings().keys() == {"min_rating"}
