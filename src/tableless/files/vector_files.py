"""Files of trained vectors: .npy, .safetensors, .parquet, and word vectors (word_vectors.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..hints import did_you_mean, install_hint
from .vector_rows import Tell, VectorRows, block_rows, mapped, rows_of
from .whole import read_shapes
from .word_vectors import read_binary_words, read_text_words

_TEXT = (".txt", ".vec", ".w2v", ".glove")
KNOWN = (".npy", ".safetensors", ".parquet", ".bin", *_TEXT)
"""The endings of files that can be read."""


def read_vectors(path: Path, *, ids: str | None = None, vectors: str | None = None, tell: Tell) -> VectorRows:
    """Read a file of vectors.

    `ids` is a column of a parquet file, or beside a .npy or .safetensors file another file: text with an id in each
    line, or .npy with integers. `vectors` names a tensor or a column, where a file has several.
    """
    kind = path.suffix.lower()
    if kind not in KNOWN:
        raise ValueError(
            f"{path} is of no known kind; known are {', '.join(KNOWN)} (word2vec binary is .bin, word2vec and GloVe as "
            f"text are {' '.join(_TEXT)}). Unpack a packed file first"
        )
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if kind == ".parquet":
        return _read_parquet(path, ids, vectors, tell)
    if kind in (".bin", *_TEXT):
        if ids is not None or vectors is not None:
            raise ValueError(f"{path} has its ids in it, and one vector for each; leave ids and vectors away")
        return read_binary_words(path, tell) if kind == ".bin" else read_text_words(path, tell)
    if kind == ".npy":
        array = _array(path)
        rows, num_bytes = rows_of(array, str(path), tell), array.nbytes
    else:
        rows, num_bytes = _read_safetensors(path, vectors, tell)
    return VectorRows(rows, np.arange(len(rows)) if ids is None else _read_ids(Path(ids)), num_bytes)


def _array(path: Path) -> NDArray[Any]:
    try:
        # Mapped as copy-on-write: torch warns of arrays that cannot be written to.
        array: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is damaged, or no .npy file of plain numbers: {error}") from None
    return array


def _read_ids(path: Path) -> Any:
    if path.suffix.lower() == ".npy":
        return _array(path)
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")  # words may have other line breaks


def _read_safetensors(path: Path, name: str | None, tell: Tell) -> tuple[NDArray[np.float32], int]:
    from safetensors import safe_open

    shapes = read_shapes(path)
    tables = [each for each, shape in shapes.items() if len(shape) == 2]
    if name is None and len(tables) == 1:
        name = tables[0]
    if name not in tables:
        largest = sorted(tables, key=lambda each: -shapes[each][0])
        wanted = "which of them is meant?" if name is None else f"vectors is {name!r}, which is none of them"
        raise ValueError(
            f"{path} has {len(tables)} tensors of two dimensions; {wanted} Name one as vectors: "
            f"{', '.join(largest[:8])}{', …' if len(tables) > 8 else ''}{did_you_mean(name or '', tables)}"
        )
    num_rows, dim = shapes[name]
    step = block_rows(dim)
    with safe_open(path, framework="pt") as file:
        tensor = file.get_slice(name)
        size = tensor[:1].element_size()
        blocks = (tensor[start : start + step].float().numpy() for start in range(0, num_rows, step))
        return mapped(blocks, dim, tell=tell, total=num_rows), num_rows * dim * size


def _read_parquet(path: Path, ids: str | None, vectors: str | None, tell: Tell) -> VectorRows:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise ImportError(f"parquet files are read by pyarrow: {install_hint('data')}") from None
    try:
        file = parquet.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is damaged, or no parquet file: {error}") from None
    schema = file.schema_arrow
    id_column, columns = _parquet_columns(path, schema, ids, vectors)
    names = [*columns, *([id_column] if id_column else [])]
    found: list[Any] = []

    def blocks() -> Iterator[NDArray[np.float32]]:
        done = 0
        for batch in file.iter_batches(batch_size=4096, columns=names):
            if id_column:
                found.append(batch.column(id_column))
            yield _numbers(path, [batch.column(each) for each in columns], done)
            done += len(batch)

    stream = blocks()
    first = next(stream, np.empty((0, 1), np.float32))
    dim = first.shape[1]

    def same() -> Iterator[NDArray[np.float32]]:
        yield first
        for block in stream:
            if block.shape[1] != dim:
                raise ValueError(f"{path}: vectors of {dim} and of {block.shape[1]} numbers; all must be equally long")
            yield block

    rows = mapped(same(), dim, tell=tell, total=file.metadata.num_rows)
    raw = pa.chunked_array(found) if found else np.arange(len(rows))
    return VectorRows(rows, raw, rows.size * _width(schema, columns))


def _parquet_columns(path: Path, schema: Any, ids: str | None, vectors: str | None) -> tuple[str | None, list[str]]:
    """The column of the ids (or None), and the columns of the numbers: one of lists, or many."""
    from pyarrow import types

    for name in (ids, vectors):
        if name is not None and name not in schema.names:
            raise ValueError(
                f"{path} has no column {name!r}; it has {', '.join(schema.names)}{did_you_mean(name, schema.names)}"
            )
    lists = [each.name for each in schema if _is_list(each.type) and each.name != ids]
    keys = [
        each.name
        for each in schema
        if types.is_string(each.type) or types.is_large_string(each.type) or (types.is_integer(each.type) and lists)
    ]
    id_column = ids or ("id" if "id" in schema.names else next(iter(keys), None))
    if vectors is not None or len(lists) == 1:
        return id_column, [vectors or lists[0]]
    if lists:
        raise ValueError(f"{path} has several columns of lists: {', '.join(lists)}; name one as vectors")
    numbers = [
        each.name
        for each in schema
        if (types.is_floating(each.type) or types.is_integer(each.type)) and each.name != id_column
    ]
    if not numbers:
        raise ValueError(f"{path} has no column of lists and no columns of numbers, so there are no vectors in it")
    return id_column, numbers


def _numbers(path: Path, columns: list[Any], start: int) -> NDArray[np.float32]:
    if any(column.null_count for column in columns):
        raise ValueError(f"{path}: a vector is missing near row {start}; drop the rows without one")
    if not _is_list(columns[0].type):
        return np.stack([column.to_numpy(zero_copy_only=False) for column in columns], 1).astype(np.float32)
    (column,) = columns
    lengths = np.asarray(column.value_lengths()) if hasattr(column, "value_lengths") else None
    values = column.flatten()
    if values.null_count:
        raise ValueError(f"{path}: a number of a vector is missing near row {start}; drop the rows without one")
    if lengths is not None and len(lengths) and (lengths != lengths[0]).any():
        other = int(np.flatnonzero(lengths != lengths[0])[0])
        raise ValueError(
            f"{path}: row {start + other} has {lengths[other]} numbers, and rows before it {lengths[0]}; all vectors "
            "must be equally long"
        )
    return values.to_numpy(zero_copy_only=False).astype(np.float32).reshape(len(column), -1)


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _width(schema: Any, columns: list[str]) -> int:
    """Bytes of a number."""
    kind = schema.field(columns[0]).type
    return int((kind.value_type if _is_list(kind) else kind).bit_width) // 8
