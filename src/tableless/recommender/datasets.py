"""Known datasets and where they are found, and `load_interactions`: a name or a path → Interactions."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from .core import keep_core
from .downloads import MAX_BYTES, download
from .interactions import DataError, Interactions, Report
from .staging import staged
from .world import World

if TYPE_CHECKING:
    from .reading.columns import Columns

    _Source = tuple[list[Path], Columns]  # files that are read alike; a second source has the test actions

_FEW_ACTIONS = 1 << 22  # kept in memory, if nobody asked for them to be kept on disk


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


def load_interactions(
    data: str | Path,
    *,
    data_dir: Path | str | None = None,
    user_col: str | None = None,
    item_col: str | None = None,
    time_col: str | None = None,
    core: int = 0,
    cache_dir: Path | str | None = None,
    report: Report | None = None,
) -> Interactions:
    """Interactions of a file, a directory of parquet files, a known dataset or the synthetic world.

    A known name is looked for in `data_dir`, else in $TABLELESS_DATA, else in ~/.cache/tableless/data, and downloaded
    into there if it can be. Columns that are not named are guessed (see `guess_columns`), and `report` is told which.
    With a `cache_dir` the prepared arrays are kept there, and used again while the files and the options are the same.
    """
    world = World.parse(str(data))
    if world is not None:
        return keep_core(world.interactions(), core)
    from .reading.columns import guess_columns

    files = find_data(data, data_dir=data_dir, report=report)
    columns = guess_columns(files[0], user_col=user_col, item_col=item_col, time_col=time_col)
    return _loaded([(files, columns)], core=core, cache_dir=cache_dir, report=report)


def load_parts(
    data: str | Path,
    *,
    test: str | Path | None = None,
    part_col: str | None = None,
    data_dir: Path | str | None = None,
    user_col: str | None = None,
    item_col: str | None = None,
    cache_dir: Path | str | None = None,
    report: Report | None = None,
) -> Interactions:
    """Interactions with a given split, for `split_given`: the time of each action is its `Part`.

    Either the column `part_col` says train, validation (valid, val, dev) or test, or `test` is a file with the test
    actions and all of `data` is for training. That file may have another format and other names of columns, but ids of
    the same kind. The rest is as in `load_interactions`.
    """
    if (test is None) == (part_col is None):
        raise DataError("a given split needs either a file with the test actions or a column with the parts")
    if World.parse(str(data)) is not None:
        raise DataError("the synthetic world has no given split; leave one out, or name a file")
    from .reading.columns import guess_columns

    found = [find_data(name, data_dir=data_dir, report=report) for name in (data, test) if name is not None]
    named = {"user_col": user_col, "item_col": item_col, "time_col": "", "part_col": part_col}
    sources = [(files, guess_columns(files[0], **named)) for files in found]
    return _loaded(sources, core=0, cache_dir=cache_dir, report=report)


def find_data(data: str | Path, *, data_dir: Path | str | None = None, report: Report | None = None) -> list[Path]:
    """The files that a path or a known name stands for; a known dataset that is missing is downloaded."""
    from .reading.actions import find_files

    data = str(data)
    known = DATASETS.get(data.lower())
    if known is None:
        if not Path(data).exists():
            raise DataError(
                f"{data!r} is neither a file, nor a directory, nor one of the known names: world, {', '.join(DATASETS)}"
            )
        return find_files(Path(data))
    folder = Path(data_dir or os.environ.get("TABLELESS_DATA") or Path.home() / ".cache" / "tableless" / "data")
    if not _found(known, folder):
        _download_or_explain(data.lower(), known, folder=folder, report=report)
    return _found(known, folder)


def _found(known: KnownDataset, folder: Path) -> list[Path]:
    return next((files for pattern in known.files if (files := sorted(folder.glob(pattern)))), [])


def _loaded(
    sources: Sequence[_Source], *, core: int, cache_dir: Path | str | None, report: Report | None
) -> Interactions:
    """What `_prepared` makes: from the cache, or else in memory or in files without a name."""
    if report is not None:
        for files, columns in sources:
            report(f"{files[0]}: {columns}", None, None)
    if cache_dir is not None:
        return _prepared(sources, core=core, cache=Path(cache_dir), report=report)
    # The arrays stay readable after their files are gone, for as long as they are mapped.
    with tempfile.TemporaryDirectory(prefix="tableless-", ignore_cleanup_errors=True) as temporary:
        prepared = _prepared(sources, core=core, cache=Path(temporary), report=report)
        return prepared.in_memory() if prepared.num_actions <= _FEW_ACTIONS else prepared


def _prepared(sources: Sequence[_Source], *, core: int, cache: Path, report: Report | None) -> Interactions:
    from .preparation import prepare

    (files, columns), *test = sources
    directory = cache / f"{files[0].name.partition('.')[0]}-{_fingerprint(sources)}"
    if not directory.exists():
        with staged(directory) as staging:
            prepare(files, columns=columns, directory=staging, test=test[0] if test else None, report=report)
    if core <= 1:
        return Interactions.load(directory)
    core_directory = cache / f"{directory.name}-core-{core}"
    if not core_directory.exists():
        with staged(core_directory) as staging:
            keep_core(Interactions.load(directory), core, directory=staging)
    return Interactions.load(core_directory)


def _fingerprint(sources: Sequence[_Source]) -> str:
    described = [
        ([(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files], columns.by_role)
        for files, columns in sources
    ]
    text = json.dumps([2, described])  # 2: change it with what `prepare` writes
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
