"""Sources: the name of a known dataset → its files, downloaded if need be.

A download is fetched, checked and unpacked aside, within limits, and only then moved to its place.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ..files.whole import remove_abandoned
from .interactions import DataError, Report

MAX_BYTES = 1_000_000_000
"""The most that is downloaded, unless a dataset is known to be larger: four times MovieLens' largest archive."""
MAX_UNPACKED_BYTES = 8_000_000_000
"""The most that an archive may unpack to: MovieLens' largest comes to little more than one."""
MAX_UNPACKED_FILES = 10_000

_BLOCK = 1 << 20


def download(
    url: str, folder: Path, *, name: str, md5: str | None, max_bytes: int = MAX_BYTES, report: Report | None = None
) -> None:
    """Put what a URL holds into a folder: the files of a .zip, anything else as the file `name`.

    Refused are a wrong MD5, more than `max_bytes` (whatever the server announces), and an archive that unpacks to too
    much or to a place outside of the folder. Where no MD5 is known, `report` is told the SHA-256 and that nothing was
    checked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    remove_abandoned(folder)
    with tempfile.TemporaryDirectory(prefix=".download-", suffix=".partial", dir=folder) as temporary:
        fetched, unpacked = Path(temporary) / "fetched", Path(temporary) / "unpacked"
        _fetch(url, fetched, max_bytes=max_bytes, report=report)
        _check(fetched, url, md5, report)
        if url.endswith(".zip"):
            _unpack(fetched, unpacked)
        else:
            fetched.rename(_with_parent(unpacked / name))
        for file in sorted(path for path in unpacked.rglob("*") if path.is_file()):
            file.replace(_with_parent(folder / file.relative_to(unpacked)))


def _fetch(url: str, target: Path, *, max_bytes: int, report: Report | None) -> None:
    done = 0
    with urllib.request.urlopen(url, timeout=30) as response, target.open("wb") as file:
        length = response.headers.get("Content-Length") or ""
        total = int(length) if length.isdecimal() else None
        _refuse_more(url, total or 0, max_bytes)
        while block := response.read(_BLOCK):
            done += len(block)
            _refuse_more(url, done, max_bytes)  # the announced length may be missing, or a lie
            file.write(block)
            if report is not None:
                report(f"downloading {url}", done, total)
    if total is not None and done != total:
        raise DataError(f"{url} ended after {done} of {total} bytes")


def _refuse_more(url: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise DataError(f"{url} has more than the {max_bytes:,} bytes that are expected at most")


def _check(file: Path, url: str, md5: str | None, report: Report | None) -> None:
    digest = hashlib.sha256() if md5 is None else hashlib.md5(usedforsecurity=False)
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    if md5 is not None and digest.hexdigest() != md5:
        raise DataError(f"{url} has the MD5 {digest.hexdigest()} instead of {md5}")
    if md5 is None and report is not None:
        report(
            f"{url}: its authors publish no checksum, so its content was not checked against anything; "
            f"its SHA-256 is {digest.hexdigest()}",
            None,
            None,
        )


def _unpack(archive: Path, directory: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
            for member in members:
                if not (directory / member.filename).resolve().is_relative_to(directory.resolve()):
                    raise DataError(f"the archive holds {member.filename!r}, which lies outside of it")
            if len(members) > MAX_UNPACKED_FILES:
                raise DataError(f"the archive holds {len(members):,} files; {MAX_UNPACKED_FILES:,} are the most")
            _refuse_bomb(sum(member.file_size for member in members))
            left = MAX_UNPACKED_BYTES
            for member in members:
                if not member.is_dir():
                    left -= _extract(opened, member, directory / member.filename, left)
    except (RuntimeError, zlib.error, EOFError) as error:  # a password, an unknown method, a damaged part
        raise DataError(f"the archive can't be unpacked ({error})") from None


def _extract(opened: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, left: int) -> int:
    """Write one file of an archive; returns how many bytes really came out, whatever the archive says about it."""
    size = 0
    with opened.open(member) as stream, _with_parent(target).open("wb") as file:
        while block := stream.read(_BLOCK):
            size += len(block)
            _refuse_bomb(size, left)
            file.write(block)
    return size


def _refuse_bomb(size: int, left: int | None = None) -> None:
    if size > (MAX_UNPACKED_BYTES if left is None else left):
        raise DataError(f"the archive unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")


def _with_parent(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@dataclass(frozen=True)
class KnownDataset:
    """What a dataset is called on disk, and where it comes from."""

    files: tuple[str, ...]  # paths below the data folder, the first that exists is taken; * for several files
    page: str  # where a person finds it
    url: str | None = None  # where we do; None: only after a login, or a click on a licence
    md5: str | None = None  # as published by its authors; None: they publish none
    max_bytes: int = MAX_BYTES  # of the download; more is refused


def _movielens(size: str, file: str, md5: str) -> KnownDataset:
    page = f"https://grouplens.org/datasets/movielens/{size}/"
    url = f"https://files.grouplens.org/datasets/movielens/ml-{size}.zip"
    return KnownDataset((f"ml-{size}.parquet", file), page, url, md5)


DATASETS: Mapping[str, KnownDataset] = MappingProxyType(
    {
        "movielens-100k": _movielens("100k", "ml-100k/u.data", "0e33842e24a9c977be4e0107933c0723"),
        "movielens-1m": _movielens("1m", "ml-1m/ratings.dat", "c4d9eecfca2ab87c1945afe126590906"),
        "movielens-10m": _movielens("10m", "ml-10M100K/ratings.dat", "ce571fd55effeba0271552578f2648bd"),
        "movielens-20m": _movielens("20m", "ml-20m/ratings.csv", "cd245b17a1ae2cc31bb14903e1204af3"),
        "movielens-25m": _movielens("25m", "ml-25m/ratings.csv", "6b51fb2759a8657d3bfcbfc42b592ada"),
        "movielens-32m": _movielens("32m", "ml-32m/ratings.csv", "d472be332d4daa821edc399621853b57"),
        "amazon-books": KnownDataset(
            ("Books_5.parquet", "Books_5.csv", "Books_5.json", "Books_5.json.gz"),
            "https://nijianmo.github.io/amazon/",
            "https://mcauleylab.ucsd.edu/public_datasets/data/amazon_v2/categoryFilesSmall/Books_5.json.gz",
            max_bytes=20_000_000_000,  # 27 million reviews with their texts
        ),
        "amazon-instant-video": KnownDataset(
            ("amazon-instant-video-2014.parquet", "ratings_Amazon_Instant_Video.csv"),
            "https://jmcauley.ucsd.edu/data/amazon/",
            "https://snap.stanford.edu/data/amazon/productGraph/categoryFiles/ratings_Amazon_Instant_Video.csv",
        ),
        "movietweetings": KnownDataset(
            ("movietweetings-142k.parquet", "movietweetings.parquet", "MovieTweetings/latest/ratings.dat"),
            "https://github.com/sidooms/MovieTweetings",
            "https://raw.githubusercontent.com/sidooms/MovieTweetings/master/latest/ratings.dat",
        ),
        "bookcrossing": KnownDataset(
            ("bookcrossing.parquet", "BX-Book-Ratings.csv"), "http://www2.informatik.uni-freiburg.de/~cziegler/BX/"
        ),
        "gowalla": KnownDataset(("gowalla.parquet",), "https://snap.stanford.edu/data/loc-gowalla.html"),
        "globo": KnownDataset(
            ("globo.parquet", "clicks/clicks_hour_*.csv"),
            "https://www.kaggle.com/datasets/gspmoreira/news-portal-user-interactions-by-globocom",
        ),
    }
)


def find_known(name: str, *, data_dir: Path | str | None = None, report: Report | None = None) -> list[Path]:
    """The files of one of the `DATASETS`. If they are missing, they are downloaded."""
    known = DATASETS[name]
    folder = Path(data_dir or os.environ.get("TABLELESS_DATA") or Path.home() / ".cache" / "tableless" / "data")
    if not _found(known, folder):
        _download_or_explain(name, known, folder=folder, report=report)
    return _found(known, folder)


def _found(known: KnownDataset, folder: Path) -> list[Path]:
    return next((files for pattern in known.files if (files := sorted(folder.glob(pattern)))), [])


def _download_or_explain(name: str, known: KnownDataset, *, folder: Path, report: Report | None) -> None:
    if known.url is None:
        reason = "can only be downloaded by hand"
    else:
        try:
            file = known.files[-1]
            download(known.url, folder, name=file, md5=known.md5, max_bytes=known.max_bytes, report=report)
            if _found(known, folder):
                return
            reason = f"was downloaded, but {known.url} holds no {known.files[-1]}"
        except (OSError, http.client.HTTPException, zipfile.BadZipFile, DataError) as error:
            reason = f"could not be downloaded ({error})"
    raise DataError(
        f"{name} is not in {folder} and {reason}; get {known.url or 'it'} (see {known.page}), unpacked if need be, so "
        f"that {folder / known.files[-1]} exists, or name the folder that has it by --data-dir or $TABLELESS_DATA"
    )
