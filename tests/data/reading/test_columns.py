import pytest

from tableless.data.interactions import DataError
from tableless.data.reading.columns import ITEM_COLUMNS, Columns, find_column, guess_columns
from tests.data.reading.small_files import read, separated, write


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

    def test_a_column_that_is_there_twice_is_refused_if_it_is_read(self, tmp_path):
        file = write(tmp_path / "rows.csv", "user,item,note,note\n1,2,x,y\n")
        assert guess_columns(file) == Columns("user", "item", None)
        with pytest.raises(DataError, match="several columns called 'item'"):
            guess_columns(write(tmp_path / "rows.csv", "user,item,item\n1,2,3\n"))

    def test_names_are_shown_on_one_line(self, tmp_path):
        file = write(tmp_path / "rows.jsonl", '{"a\\nb": 1, "item": 2}\n')
        with pytest.raises(DataError) as refusal:
            guess_columns(file)
        assert "'a\\nb', item" in str(refusal.value)
        assert "\n" not in str(refusal.value)
