import os
import urllib.error

import polars as pl
import pytest

from tableless.data import sources
from tableless.data.interactions import DataError
from tableless.data.loading import find_data, load_interactions
from tableless.data.sources import DATASETS

CSV = "userId,movieId,rating,timestamp\n1,10,5,3\n2,10,4,1\n1,20,3,2\n2,30,1,2\n1,30,1,4\n"


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    def refuse(url, **_):
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setattr(sources.urllib.request, "urlopen", refuse)
    monkeypatch.delenv("TABLELESS_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


class TestKnownNames:
    @pytest.mark.parametrize(
        ("name", "path", "text"),
        [
            ("movielens-100k", "ml-100k/u.data", "196\t242\t3\t881250949\n186\t302\t3\t891717742\n"),
            ("movielens-1m", "ml-1m/ratings.dat", "1::1193::5::978300760\n2::661::3::978302109\n"),
            ("movielens-10m", "ml-10M100K/ratings.dat", "1::122::5::838985046\n2::185::5::838983525\n"),
            ("movielens-20m", "ml-20m/ratings.csv", CSV),
            ("MovieLens-25M", "ml-25m/ratings.csv", CSV),
            ("amazon-books", "Books_5.csv", "0001713353,A1C6M8LCIX4M6M,5.0,1123804800\nB01,A2,5.0,1112140800\n"),
            (
                "amazon-books",
                "Books_5.json.gz",
                '{"overall": 5.0, "reviewerID": "A1C6M8LCIX4M6M", "asin": "0001713353", "unixReviewTime": 1123804800}\n'
                '{"overall": 5.0, "reviewerID": "A2", "asin": "B01", "unixReviewTime": 1123804801}\n',
            ),
            (
                "amazon-instant-video",
                "ratings_Amazon_Instant_Video.csv",
                "A1EE2E3N7PW666,B000GFDAUG,5.0,1202256000\n" * 2,
            ),
            (
                "movietweetings",
                "MovieTweetings/latest/ratings.dat",
                "1::0114508::8::1381006850\n2::0208092::5::1586466072\n",
            ),
            (
                "bookcrossing",
                "BX-Book-Ratings.csv",
                '"User-ID";"ISBN";"Book-Rating"\n"1";"034545104X";"0"\n"2";"1";"5"\n',
            ),
            (
                "globo",
                "clicks/clicks_hour_000.csv",
                "user_id,session_id,session_start,session_size,click_article_id,click_timestamp\n"
                "0,1506825423271737,1506825423000,2,119592,1506826828020\n"
                "1,1506825423271737,1506825423000,2,30970,1506826858020\n",
            ),
        ],
    )
    def test_the_official_files_are_found_and_understood(self, tmp_path, name, path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if name == "amazon-instant-video":
            file.write_text(text.replace("A1EE", "A2EE", 1).replace("GFDAUG", "GFDAUX", 1))
        loaded = load_interactions(name, data_dir=tmp_path)
        assert (loaded.num_users, loaded.num_actions) == (2, 5 if text == CSV else 2)
        assert (loaded.times is None) == (name == "bookcrossing")
        assert loaded.item_kind == ("string" if name[:4] in ("amaz", "book") or "tweet" in name else "integer")
        if name == "amazon-books":
            assert "0001713353" in loaded.item_names

    def test_parquet_is_preferred(self, tmp_path):
        pl.DataFrame({"user_id": [1, 2], "item_id": [1, 2]}).write_parquet(tmp_path / "ml-20m.parquet")
        (tmp_path / "ml-20m").mkdir()
        (tmp_path / "ml-20m" / "ratings.csv").write_text(CSV)
        assert find_data("movielens-20m", data_dir=tmp_path) == [tmp_path / "ml-20m.parquet"]

    def test_the_environment_names_the_folder(self, tmp_path, monkeypatch):
        (tmp_path / "ml-20m").mkdir()
        (tmp_path / "ml-20m" / "ratings.csv").write_text(CSV)
        monkeypatch.setenv("TABLELESS_DATA", str(tmp_path))
        assert load_interactions("movielens-20m").num_actions == 5

    @pytest.mark.parametrize("name", DATASETS)
    def test_what_cannot_be_downloaded_is_explained_in_one_line(self, tmp_path, name):
        with pytest.raises(DataError) as error:
            load_interactions(name, data_dir=tmp_path / "data")
        message = str(error.value)
        assert "\n" not in message
        assert DATASETS[name].page in message
        assert str(tmp_path / "data" / DATASETS[name].files[-1]) in message
        assert ("no network in tests" in message) == (DATASETS[name].url is not None)
        assert not (tmp_path / "data").exists() or os.listdir(tmp_path / "data") == []

    def test_downloads_are_encrypted_and_checksums_look_like_ones(self):
        for known in DATASETS.values():
            assert known.url is None or known.url.startswith("https://")
            assert known.md5 is None or (len(known.md5) == 32 and int(known.md5, 16))
