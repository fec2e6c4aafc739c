"""Data that is in memory (frames, Arrow tables, arrays) is written as a parquet file, and read like any other file."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from torch import Tensor

from ..hints import install_hint
from .config import DataConfig, FeatureConfig, FeatureUse, RowRules
from .interactions import DataError

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

_NAMES = ("user", "item", "time")  # of the columns of arrays that come without names


class ArrowData(Protocol):
    """What hands over its columns as Arrow does: frames of polars and pandas, tables of pyarrow, and more."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Arrow's PyCapsule interface."""


class LazyData(Protocol):
    """A frame that is not computed yet: polars' LazyFrame."""

    def collect(self) -> pl.DataFrame:
        """Compute it."""


Data = (
    str | os.PathLike[str] | ArrowData | LazyData | Mapping[str, Any] | tuple[Any, ...] | np.ndarray[Any, Any] | Tensor
)
"""A path or a known name, a frame, an Arrow table, or arrays: a dict of columns, (users, items), (users, items, times),
or an array with two or three columns."""


def as_path(data: Data, folder: Path, *, name: str) -> str:
    """A path or a known name as it is. Anything else is written to `folder`, and that path is returned.

    The file's name begins with `name` and has a digest of its content: other data has another name.
    """
    if isinstance(data, (str, os.PathLike)):
        return os.fspath(data)
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as missing:
        raise ImportError(f"data in memory is taken by {missing.name}: {install_hint('data')}") from missing
    written = folder / f"{name}.parquet"
    try:
        pq.write_table(_to_table(data, name), written)
    except (pa.ArrowException, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"{name} cannot be written as a table ({reason}); all columns need the same length, and each one kind of "
            "value"
        ) from error
    digest = hashlib.sha256(written.read_bytes()).hexdigest()[:16]
    return str(written.rename(folder / f"{name}-{digest}.parquet"))


def data_configs(
    data: Data,
    folder: Path,
    *,
    test: Data | None,
    split: str,
    core: int,
    columns: tuple[str | None, str | None, str | None],  # of users, items and times
    rules: RowRules,
    data_dir: str | os.PathLike[str] | None,
    cache_dir: str | os.PathLike[str] | None,
) -> tuple[DataConfig, DataConfig]:
    """The config to read by, and the one that a run records: of data in memory it has the digest, not a path."""
    read = DataConfig(
        as_path(data, folder, name="data"),
        None if data_dir is None else os.fspath(data_dir),
        *columns,
        **asdict(rules),
        core=core,
        split=split,
        test=None if test is None else as_path(test, folder, name="test"),
    )
    in_memory = {
        role: Path(path).name
        for role, path in (("data", read.data), ("test", read.test))
        if path is not None and Path(path).parent == folder
    }
    if in_memory and cache_dir is not None:
        raise DataError("cache_dir keeps what was prepared from files, and this data is in memory; leave it out")
    return read, replace(read, **in_memory)  # type: ignore[arg-type]


def feature_config(
    item_features: Data | None, user_features: Data | None, use: FeatureUse, folder: Path
) -> FeatureConfig:
    """The config to read features by; those in memory are written to `folder` first."""
    items, users = (
        None if given is None else as_path(given, folder, name=name)
        for given, name in ((item_features, "item_features"), (user_features, "user_features"))
    )
    return FeatureConfig(items, users, use)


def temporary_folder(stack: ExitStack) -> Path:
    """A directory that is deleted when the stack is closed."""
    folder = Path(tempfile.mkdtemp(prefix="tableless-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _to_table(data: Any, name: str) -> pa.Table:
    import polars as pl
    import pyarrow as pa

    if isinstance(data, pl.LazyFrame):
        data = data.collect()
    if isinstance(data, pl.DataFrame):
        return data.to_arrow()  # polars' own types for strings are not known to every version of parquet
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    if isinstance(data, (np.ndarray, Tensor)) and data.ndim == 2:
        data = tuple(data.T)
    if isinstance(data, tuple):
        if len(data) not in (2, 3):
            raise DataError(f"{name} has {len(data)} arrays; give those of users and items, and of times if there are")
        data = dict(zip(_NAMES, data, strict=False))
    if not isinstance(data, Mapping):
        raise DataError(
            f"{name} is a {type(data).__name__}; give a path, a frame (polars, pandas), an Arrow table, a dict of "
            "columns, or (users, items, times)"
        )
    return pa.table({str(column): _to_array(values) for column, values in data.items()})


def _to_array(values: Any) -> Any:
    """A column as pyarrow takes it."""
    import polars as pl

    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    return values.to_arrow() if isinstance(values, pl.Series) else values
