"""Sources: the name of a known dataset → its files, downloaded if need be."""

from __future__ import annotations

import http.client
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from .downloads import MAX_BYTES, download
from .interactions import DataError, Report


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
