"""Datasets that are fetched from elsewhere: what arrives is checked, and there is an end to how much of it does."""

import dataclasses
import hashlib
import io
import os
import zipfile
from types import MappingProxyType

import pytest

from tableless.data import loading, sources
from tableless.data import sources as datasets
from tableless.data.interactions import DataError
from tableless.data.loading import load_interactions
from tableless.data.sources import KnownDataset

CSV = "userId,movieId,rating,timestamp\n1,10,5,3\n2,10,4,1\n1,20,3,2\n2,30,1,2\n1,30,1,4\n"
PLAIN = {"url": "https://example.org/ratings.csv", "md5": None}


@pytest.fixture(autouse=True)
def no_home(monkeypatch, tmp_path):
    monkeypatch.delenv("TABLELESS_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A known dataset "toy", whose archive lies on this disk; returns a function that fills the archive."""
    archive = tmp_path / "toy.zip"

    class Opened:
        def __init__(self, url, **_):
            self.file = archive.open("rb")
            self.headers = serve.headers
            self.read = self.file.read

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

    def serve(members, headers=None, **changes):
        with zipfile.ZipFile(archive, "w") as opened:
            for name, text in members.items():
                opened.writestr(name, text)
        md5 = hashlib.md5(archive.read_bytes()).hexdigest()
        toy = KnownDataset(("toy/ratings.csv",), "https://example.org/toy", "https://example.org/toy.zip", md5)
        toy = dataclasses.replace(toy, **changes)
        for module in (datasets, loading):
            monkeypatch.setattr(module, "DATASETS", MappingProxyType({"toy": toy}))
        monkeypatch.setattr(sources.urllib.request, "urlopen", Opened)
        serve.headers = {"Content-Length": str(archive.stat().st_size)} if headers is None else headers
        return archive

    return serve


def test_a_missing_dataset_is_fetched_checked_and_unpacked(tmp_path, served):
    served({"toy/ratings.csv": CSV, "toy/movies.csv": "movieId,title\n"})
    told = []
    loaded = load_interactions("toy", data_dir=tmp_path / "data", report=lambda *news: told.append(news))
    assert loaded.num_actions == 5
    assert sorted(os.listdir(tmp_path / "data" / "toy")) == ["movies.csv", "ratings.csv"]
    assert os.listdir(tmp_path / "data") == ["toy"]
    size = (tmp_path / "toy.zip").stat().st_size
    assert told[0] == ("downloading https://example.org/toy.zip", size, size)


def test_it_is_not_fetched_twice(tmp_path, served):
    archive = served({"toy/ratings.csv": CSV})
    load_interactions("toy", data_dir=tmp_path / "data")
    archive.unlink()
    assert load_interactions("toy", data_dir=tmp_path / "data").num_actions == 5


def test_without_a_folder_it_goes_where_caches_go(tmp_path, served):
    served({"toy/ratings.csv": CSV})
    load_interactions("toy")
    assert (tmp_path / "home" / ".cache" / "tableless" / "data" / "toy" / "ratings.csv").exists()


def test_a_file_that_is_no_archive_is_put_in_its_place(tmp_path, served):
    archive = served({}, url="https://example.org/ratings.csv", md5=None)
    archive.write_text(CSV)
    served.headers = {}
    assert load_interactions("toy", data_dir=tmp_path / "data").num_actions == 5


@pytest.mark.parametrize(
    ("members", "changes", "message"),
    [
        ({"toy/ratings.csv": CSV}, {"md5": "0" * 32}, "MD5"),
        ({"../escaped.csv": CSV}, {}, r"'\.\./escaped.csv', which lies outside"),
        ({"toy/other.csv": CSV}, {}, r"holds no toy/ratings.csv"),
    ],
)
def test_a_wrong_archive_is_refused_and_leaves_nothing_behind(tmp_path, served, members, changes, message):
    served(members, **changes)
    with pytest.raises(DataError, match=message):
        load_interactions("toy", data_dir=tmp_path / "data")
    assert not (tmp_path / "data" / "toy" / "ratings.csv").exists()
    assert not (tmp_path / "escaped.csv").exists()
    assert all(name == "toy" for name in os.listdir(tmp_path / "data"))


def test_a_damaged_archive_is_refused(tmp_path, served):
    archive = served({"toy/ratings.csv": CSV}, md5=None)
    archive.write_bytes(b"not a zip")
    served.headers = {}
    with pytest.raises(DataError, match="could not be downloaded"):
        load_interactions("toy", data_dir=tmp_path / "data")
    assert os.listdir(tmp_path / "data") == []


def assert_refused(folder, message):
    with pytest.raises(DataError, match=message) as error:
        load_interactions("toy", data_dir=folder)
    assert "\n" not in str(error.value)
    assert os.listdir(folder) == [], "nothing is left behind"


@pytest.mark.parametrize(
    ("headers", "max_bytes", "blocks"),
    [
        ({"Content-Length": "3000000000"}, 10**9, 0),  # refused before a byte is read
        ({}, 3 << 20, 4),  # not announced
        ({"Content-Length": "5"}, 3 << 20, 4),  # announced, and not true
        ({"Content-Length": "plenty"}, 3 << 20, 4),
    ],
)
def test_more_than_is_expected_is_not_downloaded(tmp_path, served, monkeypatch, headers, max_bytes, blocks):
    served({}, headers=headers, max_bytes=max_bytes, **PLAIN)
    reads = []

    class Endless(sources.urllib.request.urlopen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.read = lambda size: reads.append(size) or b"1,2\n" * (size // 4)

    monkeypatch.setattr(sources.urllib.request, "urlopen", Endless)
    assert_refused(tmp_path / "data", f"more than the {max_bytes:,} bytes")
    assert len(reads) == blocks, "it stops at the limit"


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [("MAX_UNPACKED_BYTES", 1_999_999, "unpacks to more than 1,999,999 bytes"), ("MAX_UNPACKED_FILES", 1, "2 files")],
)
def test_an_archive_that_says_it_unpacks_to_too_much_is_not_unpacked(
    tmp_path, served, monkeypatch, limit, value, message
):
    monkeypatch.setattr(sources, limit, value)
    monkeypatch.setattr(sources, "_extract", lambda *_: pytest.fail("it was unpacked"))
    served({"toy/ratings.csv": "0" * 10**6, "toy/more.csv": "0" * 10**6})
    assert_refused(tmp_path / "data", message)


def test_what_comes_out_of_an_archive_is_counted_whatever_it_says(tmp_path, served, monkeypatch):
    """zipfile stops at the size that an archive tells; here it does not, as other readers do not."""
    monkeypatch.setattr(sources, "MAX_UNPACKED_BYTES", 5 << 20)
    served({"toy/ratings.csv": "one", "toy/more.csv": "two"})
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: io.BytesIO(b"0" * (3 << 20)))
    assert_refused(tmp_path / "data", r"unpacks to more than 5,242,880 bytes")


def test_an_archive_that_tells_a_false_size_is_refused(tmp_path, served):
    archive = served({"toy/ratings.csv": CSV * 1000}, md5=None)
    declared = len(CSV * 1000).to_bytes(4, "little")
    archive.write_bytes(archive.read_bytes().replace(declared * 2, declared + (9).to_bytes(4, "little")))
    assert_refused(tmp_path / "data", "could not be downloaded")


def test_an_archive_with_a_password_is_refused_in_one_line(tmp_path, served):
    archive = served({"toy/ratings.csv": CSV}, md5=None)
    content = bytearray(archive.read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + place] |= 1  # the flag of an encrypted file
    archive.write_bytes(content)
    assert_refused(tmp_path / "data", "can't be unpacked .*password")


def test_where_no_checksum_is_published_that_is_said_once_with_the_file_s_own(tmp_path, served):
    archive = served({}, **PLAIN)
    archive.write_text(CSV)
    served.headers = {}
    told = []
    load_interactions("toy", data_dir=tmp_path / "data", report=lambda text, *_: told.append(text))
    said = [text for text in told if "not checked against anything" in text]
    assert len(said) == 1
    assert hashlib.sha256(CSV.encode()).hexdigest() in said[0]


def test_of_a_checked_file_nothing_of_the_kind_is_said(tmp_path, served):
    served({"toy/ratings.csv": CSV})
    told = []
    load_interactions("toy", data_dir=tmp_path / "data", report=lambda text, *_: told.append(text))
    assert not [text for text in told if "checksum" in text]
