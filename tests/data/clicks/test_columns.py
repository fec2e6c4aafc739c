"""What a user says of a column, and how its values become ids and numbers."""

import datetime

import numpy as np
import polars as pl
import pytest

from tableless import to_ids
from tableless.data.clicks.columns import (
    LONGEST_LIST,
    MISSING,
    ClickColumn,
    ids_in,
    lists_in,
    numbers_in,
    parse_columns,
)
from tableless.data.interactions import DataError


def place(row):
    return f"line {row + 2}"


def test_a_column_is_a_name_and_perhaps_what_it_is():
    parsed = parse_columns("user, genres:| ,zip:string,price:buckets,tags:list")
    assert parsed == (
        ClickColumn("user"),
        ClickColumn("genres", is_list=True, separator="|"),
        ClickColumn("zip", "string"),
        ClickColumn("price", "buckets"),
        ClickColumn("tags", is_list=True),
    )
    assert parse_columns({"user": None, "genres": ","}) == (ClickColumn("user"), ClickColumn("genres", None, True, ","))
    assert all(ClickColumn.from_settings(column.settings()) == column for column in parsed)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("user,user", "the column 'user' is named twice"),
        ("", "no columns are named"),
        ("price:nmber", "'price:nmber' is not understood; write its name, or name:kind with one of integer, string"),
    ],
)
def test_columns_that_are_not_understood_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        parse_columns(columns)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([7, None, -3], "integer"),
        ([True, False], "integer"),
        ([7.0, None, float("nan")], "integer"),  # as pandas has integers of which some are missing
        ([7.5, 2.0], "number"),
        (["7", "", "12.0"], "integer"),
        (["7.5", "2"], "number"),
        (["007", "12"], "string"),
        (["a", "7"], "string"),
        ([None, None], "string"),
        ([datetime.date(2020, 1, 2)], "string"),
    ],
)
def test_the_values_tell_what_a_column_is(values, kind):
    assert ClickColumn("x").decided(pl.Series(values)).kind == kind


def test_lists_are_recognised_and_their_elements_tell_the_kind():
    decided = ClickColumn("x").decided(pl.Series([[3, 4], None, []]))
    assert (decided.kind, decided.is_list) == ("integer", True)
    assert ClickColumn("x", is_list=True, separator="|").decided(pl.Series(["a|b", None])).kind == "string"
    with pytest.raises(DataError, match="has lists, and lists of numbers are not read"):
        ClickColumn("x", "number").decided(pl.Series([[1.5]]))


def test_a_value_has_the_id_that_it_has_everywhere_and_a_missing_one_that_of_the_empty_string():
    found = ids_in(pl.Series(["b", None, "", "b", "a"]), ClickColumn("x", "string"), place)
    assert found.tolist() == to_ids(["b", "", "", "b", "a"]).tolist()
    assert found[1] == MISSING
    found = ids_in(pl.Series([5.0, float("nan"), -(2.0**40)]), ClickColumn("x", "integer"), place)
    assert found.tolist() == [5, MISSING, -(2**40)]
    assert ids_in(pl.Series(["5", "", "7.0"]), ClickColumn("x", "integer"), place).tolist() == [5, MISSING, 7]
    assert ids_in(pl.Series([5, 7]), ClickColumn("x", "string"), place).tolist() == to_ids(["5", "7"]).tolist()
    assert ids_in(pl.Series([None, None]), ClickColumn("x", "string"), place).tolist() == [MISSING, MISSING]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["5", "x7"], r"line 3: 'x7' \(column 'x'\) is no integer.*write x:string"),
        ([5.0, 5.25], r"line 3: 5.25 .*fraction.*If it is a number and no id, write x:number"),
        ([[5], [6]], r"line 2: .* is no single value"),
    ],
)
def test_what_is_no_id_is_refused_with_its_place(values, message):
    with pytest.raises(DataError, match=message):
        ids_in(pl.Series(values), ClickColumn("x", "integer"), place)


def test_lists_lose_what_is_missing_and_what_is_too_much():
    column = ClickColumn("x", "string", is_list=True, separator="|")
    ids, counts = lists_in(pl.Series(["a|b", None, "", "b||c ", "|"]), column, place)
    assert counts.tolist() == [2, 0, 0, 2, 0]
    assert ids.tolist() == to_ids(["a", "b", "b", "c"]).tolist()
    ids, counts = lists_in(
        pl.Series([[1, None, 2], list(range(100))]), ClickColumn("x", "integer", is_list=True), place
    )
    assert counts.tolist() == [2, LONGEST_LIST]
    assert ids[:3].tolist() == [1, 2, 0]
    with pytest.raises(DataError, match="has no lists, but Int64; leave out ':list', or say how they are separated"):
        lists_in(pl.Series([1]), ClickColumn("x", "integer", is_list=True), place)


def test_the_place_of_a_wrong_element_is_that_of_its_row():
    with pytest.raises(DataError, match=r"line 4: 'y'"):
        lists_in(pl.Series([["1"], [], ["2", "y"]]), ClickColumn("x", "integer", is_list=True), place)


def test_numbers_may_be_text_and_missing():
    found = numbers_in(pl.Series(["1,5", "", " 2"]), ClickColumn("x", "number"), place)
    assert np.array_equal(found, np.float32([1.5, np.nan, 2]), equal_nan=True)
    assert numbers_in(pl.Series([True, False]), ClickColumn("x", "number"), place).tolist() == [1, 0]
    with pytest.raises(DataError, match=r"line 3: 'many' \(column 'x'\) is not a number"):
        numbers_in(pl.Series(["1", "many"]), ClickColumn("x", "number"), place)
    with pytest.raises(DataError, match="infinite number"):
        numbers_in(pl.Series([1.0, float("inf")]), ClickColumn("x", "number"), place)
