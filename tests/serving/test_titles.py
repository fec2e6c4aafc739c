import gzip

import polars as pl
import pytest

from tableless import to_ids
from tableless.data.interactions import DataError
from tableless.serving.items import read_titles

FILMS = {"item": ["1", "2"], "name": ["Alien, the film", "Amélie"]}


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_the_same_titles_are_read_from_every_format(tmp_path):
    frame = pl.DataFrame(FILMS)
    frame.write_parquet(tmp_path / "films.parquet")
    frame.write_csv(tmp_path / "films.csv")
    frame.write_csv(tmp_path / "films.tsv", separator="\t")
    frame.write_ndjson(tmp_path / "films.jsonl")
    (tmp_path / "films.csv.gz").write_bytes(gzip.compress((tmp_path / "films.csv").read_bytes()))
    write(tmp_path / "movies.dat", "1::Alien, the film::Horror\n2::Amélie::Comedy\n", "latin-1")
    write(tmp_path / "u.item", "1|Alien, the film|1979|x\n2|Amélie|2001|x\n", "latin-1")
    for path in tmp_path.iterdir():
        assert read_titles(path, kind="integer") == {1: "Alien, the film", 2: "Amélie"}, path.name
        if path.name != "films.csv.gz":
            assert read_titles(path, kind="string").keys() == set(to_ids(["1", "2"]).tolist()), path.name


def test_the_first_title_of_an_item_counts_and_items_without_one_are_left_out(tmp_path):
    path = write(tmp_path / "films.csv", "movieId,title\n1,One\n1,Uno\n2,\n007,Seven\n")
    assert read_titles(path, kind="integer") == {1: "One", 7: "Seven"}


def test_files_that_are_of_no_use_are_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"films\.csv needs a column of item ids and a `title`; it has a, b"):
        read_titles(write(tmp_path / "films.csv", "a,b\nx,y\n"), kind="string")
    with pytest.raises(ValueError, match=r"item ids are integers in this run's data; .* has 'x'"):
        read_titles(write(tmp_path / "films.csv", "item,title\nx,y\n"), kind="integer")
    with pytest.raises(DataError, match="does not exist"):
        read_titles(tmp_path / "nothing.csv", kind="string")


def test_a_damaged_parquet_file_is_an_error_and_not_the_end_of_the_process(tmp_path):
    path = tmp_path / "films.parquet"
    pl.DataFrame(FILMS).write_parquet(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])
    with pytest.raises(ValueError, match=r"films\.parquet"):
        read_titles(path, kind="string")


@pytest.mark.parametrize(
    ("header", "title"),
    [
        ("StockCode,Description", "A MUG"),  # as online retail has them
        ("Quantity,StockCode,Description", "A MUG"),
        ("stock_code,Title,DESCRIPTION", "Mug"),  # a title is better than a description
        ("StockCode,Description,name", "Mug"),
    ],
)
def test_a_description_is_a_title_where_there_is_no_better_one(tmp_path, header, title):
    cells = {"stockcode": "85123A", "description": "A MUG", "quantity": "6", "title": "Mug", "name": "Mug"}
    row = ",".join(cells[name.lower().replace("_", "")] for name in header.split(","))
    path = write(tmp_path / "stock.csv", f"{header}\n{row}\n")
    assert read_titles(path, kind="string") == {to_ids(["85123A"]).item(): title}
