"""Features: columns of a file become rows of numbers. What was learned from the file encodes rows that come later."""

import json
import math

import numpy as np
import polars as pl
import pytest

from tableless.data.features.column import LARGEST
from tableless.data.features.reading import FeatureSource, read_features
from tableless.data.features.table import FeatureColumns
from tableless.data.interactions import DataError

IDS = [907, -13, 5_000_000_000, 31, 77, 12]
FILMS = pl.DataFrame(
    {
        "movie_id": IDS,
        "genres": ["Comedy|Drama", "Drama", None, "Horror", "Comedy", "Horror|Drama"],
        "year": [1990, 1994, 2002, 1977, None, 1960],
        "price": [1.5, 2.5, 0.5, 9.0, 4.0, math.nan],
        "studio": ["A", "B", "A", "B", "A", "C"],
        "look": [[0.0, 1.0], [2.0, 1.0], [1.0, -3.0], [0.5, 0.5], None, [4.0, 4.0]],
        "in_colour": [True, False, True, True, None, False],
    }
)


@pytest.fixture
def films(tmp_path):
    FILMS.write_parquet(tmp_path / "films.parquet")
    return str(tmp_path / "films.parquet")


def read(source, side="item", kind="integer"):
    notes = []
    return read_features(str(source), side=side, kind=kind, note=notes.append), notes


def part_of(table, name):
    """The numbers that one column became."""
    columns = table.columns.columns
    place = [column.name for column in columns].index(name)
    start = sum(column.width for column in columns[:place])
    return table.rows[:, start : start + columns[place].width]


def test_kinds_are_guessed_and_told(films):
    table, notes = read(films)
    kinds = {column.name: column.kind for column in table.columns.columns}
    assert kinds == {
        "genres": "tags",
        "year": "category",  # few whole numbers are codes, unless somebody says otherwise
        "price": "number",
        "studio": "category",
        "look": "vector",
        "in_colour": "category",
    }
    assert "genres (tags separated by '|'" in notes[-1]
    assert table.ids.tolist() == IDS


def test_columns_are_named_with_their_kinds_or_without(films):
    table, _ = read(f"{films}:genres,year=number")
    assert table.columns.names == ["genres", "year"]
    assert [column.kind for column in table.columns.columns] == ["tags", "number"]
    years = part_of(table, "year")[:, 0]
    assert years[2] > years[1] > years[0] > years[3] > years[5]
    assert part_of(table, "year")[4].tolist() == [0] * part_of(table, "year").shape[1], "nothing is known of it"


def test_tags_and_categories_are_ones_in_the_columns_of_their_values(films):
    table, _ = read(films)
    tags = next(column for column in table.columns.columns if column.name == "genres")
    assert tags.values == ("Comedy", "Drama", "Horror")
    assert part_of(table, "genres").tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 1]]
    studios = part_of(table, "studio")
    assert studios[:, :2].tolist() == [[1, 0], [0, 1], [1, 0], [0, 1], [1, 0], [0, 0]]
    assert studios[5, 2:].sum() == 1, "a studio that occurs once shares a column with other rare ones"


def test_all_numbers_fit_into_eight_bits_whatever_the_file_has(tmp_path):
    pl.DataFrame(
        {
            "item": list(range(200)),
            "price": [*map(float, range(199)), 1e30],
            "year": [0, *[1990 + i % 40 for i in range(199)]],
        }
    ).write_parquet(tmp_path / "items.parquet")
    table, _ = read(tmp_path / "items.parquet")
    assert np.isfinite(table.rows).all()
    assert np.abs(table.rows).max() <= LARGEST
    years = part_of(table, "year")[:, 0]
    assert years[1:].std() > 0.5, "one wrong year must not make all others alike"


def test_wide_vectors_become_bits_and_near_ones_near_bits(tmp_path):
    draw = np.random.default_rng(0)
    centre = draw.normal(size=(2, 300))
    vectors = centre[[0, 0, 1, 1]] + 0.1 * draw.normal(size=(4, 300))
    pl.DataFrame({"item": [1, 2, 3, 4], "text": vectors.tolist()}).write_parquet(tmp_path / "items.parquet")
    bits = read(tmp_path / "items.parquet")[0].rows
    assert bits.shape == (4, 128)
    assert set(np.unique(bits)) == {-1, 1}
    assert (bits[0] == bits[1]).mean() > 0.8 > 0.5 > (bits[0] == bits[2]).mean()


def test_repeated_ids_count_once_and_rows_without_an_id_not_at_all(tmp_path):
    frame = pl.DataFrame({"item_id": ["b", None, "a", "b"], "colour": ["red", "red", "blue", "blue"]})
    frame.write_csv(tmp_path / "items.csv")
    table, notes = read(tmp_path / "items.csv", kind="string")
    assert table.names.to_list() == ["a", "b"]
    assert table.rows.tolist() == [table.rows[0].tolist()] * 2, "the last row of b counts"
    assert any("1 rows without item ids" in note for note in notes)
    assert any("1 rows repeat item ids" in note for note in notes)


def test_a_text_that_never_repeats_is_left_out_unless_it_is_named(tmp_path):
    frame = pl.DataFrame({"item": list(range(150)), "title": [f"film {i}" for i in range(150)], "x": [0.5, 1.5] * 75})
    frame.write_csv(tmp_path / "items.csv")
    table, notes = read(tmp_path / "items.csv")
    assert table.columns.names == ["x"]
    assert any("title is not used" in note for note in notes)
    assert read(f"{tmp_path / 'items.csv'}:title")[0].columns.names == ["title"]


def test_csv_and_parquet_give_the_same_rows(films, tmp_path):
    plain = FILMS.select("movie_id", "genres", "price", "studio")
    plain.write_csv(tmp_path / "films.csv")
    names = ":genres,price,studio"
    assert np.array_equal(read(f"{tmp_path / 'films.csv'}{names}")[0].rows, read(films + names)[0].rows)


def test_what_was_learned_encodes_later_rows_after_a_way_through_json(films):
    table, _ = read(films)
    columns = FeatureColumns.from_description(json.loads(json.dumps(table.columns.describe())))
    assert columns == table.columns
    rows = [
        {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()}
        for row in FILMS.to_dicts()
    ]
    assert np.array_equal(columns.encode_rows(rows), table.rows)
    as_list = columns.encode_rows([{"genres": ["Drama", "Comedy"]}])
    assert np.array_equal(as_list, columns.encode_rows([{"genres": "Comedy|Drama"}]))
    assert not columns.encode_rows([{}]).any()
    assert not columns.encode_rows([{"genres": "Opera", "studio": None}]).any(), "an unknown tag has no column"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"genre": "Drama"}, "there is no feature 'genre'.*did you mean 'genres'"),
        ({"price": "cheap"}, "price: it must be a number, not a text"),
        ({"look": [1.0]}, "look: it must be a list of 2 numbers"),
        ({"genres": 7}, "genres: it must be a list of texts"),
        ({"studio": ["A"]}, "studio: it must be a text, not a list"),
    ],
)
def test_rows_that_are_not_understood_are_refused_with_their_place(films, row, message):
    columns = read(films)[0].columns
    with pytest.raises(ValueError, match=f"row 2: {message}"):
        columns.encode_rows([{}, row])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (":genrs", "has no column 'genrs'.*did you mean 'genres'"),
        (":genres=tag", "the kind of genres.*did you mean"),
        (":genres,", "names no column"),
    ],
)
def test_columns_that_are_not_there_are_refused(films, columns, message):
    with pytest.raises(ValueError, match=message):
        read(films + columns)


def test_ids_of_another_kind_and_files_without_ids_are_refused(films, tmp_path):
    pl.DataFrame({"item": ["x1"], "a": [1.5]}).write_parquet(tmp_path / "items.parquet")
    with pytest.raises(DataError, match="integers in the interactions, and here is 'x1'"):
        read(tmp_path / "items.parquet")
    with pytest.raises(DataError, match="call it user_id"):
        read(films, side="user")


def test_a_path_with_a_colon_is_a_path_where_there_is_one(tmp_path):
    path = tmp_path / "a:b.parquet"
    path.touch()
    assert FeatureSource.parse(str(path)) == FeatureSource(path, None)


def test_rows_are_found_by_id(films):
    table, _ = read(films)
    there, rows = table.of(np.array([77, 4, -13]))
    assert there.tolist() == [True, False, True]
    assert np.array_equal(rows, table.rows[[4, 1]])
    assert table.without(np.array([77, 907])).ids.tolist() == [-13, 5_000_000_000, 31, 12]
