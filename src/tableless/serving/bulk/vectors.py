"""Ids in, vectors out, a batch at a time: reading, computing and writing go on at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from ...embedding.ids import to_ids
from ...recommender.run_directory import Side, StoredRun
from ..fast_embedding import FastEmbedding
from .places import Place

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_BATCH = 65_536  # ids; their vectors are one row group of the file that is written
_AHEAD = 2  # batches that wait between one step and the next


class Embedder:
    """Raw ids of one side of a run → a table of `id` and `vector`."""

    def __init__(self, run: StoredRun, side: Side) -> None:
        self._side: Side = side
        self.kind: str = run.config["kinds"][side]
        self._rows_by_id = run.rows_by_id(side)
        self._embedding = FastEmbedding(run.scheme(side))

    def __call__(self, raw: pa.Array) -> pa.Table:
        """[n] -> n rows. Where the run's data has strings, integers are taken for ids, as its own lists have them."""
        import pyarrow as pa

        if self.kind == "integer" and not pa.types.is_integer(raw.type):
            raise ValueError(f"{self._side} ids are integers in this run's data, and these are of type {raw.type}")
        ids = to_ids(raw)
        inputs = ids if self._rows_by_id is None else self._rows_by_id(ids)
        flat = pa.array(self._embedding(inputs).reshape(-1).numpy())
        vectors = pa.FixedSizeListArray.from_arrays(flat, self._embedding.embedding_dim)
        return pa.table({"id": raw, "vector": vectors})


def write_vectors(embed: Embedder, batches: Iterable[pa.Array], target: Place, *, source: str) -> int:
    """Write the vectors of all batches to a parquet file that appears whole or not at all; returns how many."""
    import pyarrow.parquet as pq

    tables = _ahead(_embedded(embed, _ahead(iter(batches)), source))
    first = next(tables, None)
    if first is None:
        raise ValueError(f"{source} holds no ids")
    # Dictionaries, and the least and greatest value, are of no use for vectors, and both cost time.
    with (
        target.written_whole() as stream,
        pq.ParquetWriter(stream, first.schema, use_dictionary=["id"], write_statistics=["id"]) as writer,
    ):
        count = 0
        for table in chain([first], tables):
            writer.write_table(table)
            count += len(table)
    return count


def id_batches(
    place: Place, column: str | None, *, kind: str, row_groups: Sequence[int] | None = None
) -> Iterator[pa.Array]:
    """The ids of a file in batches: parquet (or some of its row groups), or, on this machine, CSV or an id a line.

    In text, "007" is a string or the number 7, as `kind` says.
    """
    if not place.path.lower().endswith(".parquet"):
        yield from _text_batches(place.path, column, as_strings=kind == "string")
        return
    import pyarrow.parquet as pq

    with pq.ParquetFile(place.path, filesystem=place.filesystem) as file:
        name = choose_column(place.path, file.schema_arrow.names, column)
        for batch in file.iter_batches(_BATCH, columns=[name], row_groups=row_groups):
            yield batch.column(0)


def choose_column(source: str, names: Sequence[str], column: str | None) -> str:
    """The column asked for, else `id`, else the first."""
    if column is not None and column not in names:
        raise ValueError(f"{source} has no column {column!r}; it has {', '.join(names)}")
    return column or ("id" if "id" in names else names[0])


def _text_batches(path: str, column: str | None, *, as_strings: bool) -> Iterator[pa.Array]:
    import polars as pl

    if path.lower().endswith((".csv", ".tsv")):
        separator = "\t" if path.lower().endswith(".tsv") else ","
        frame = pl.scan_csv(path, separator=separator, infer_schema=not as_strings)
    else:
        frame = pl.scan_csv(path, has_header=False, new_columns=["id"], infer_schema=not as_strings)
    name = choose_column(path, frame.collect_schema().names(), column)
    for batch in frame.select(name).collect_batches(chunk_size=_BATCH, maintain_order=True):
        yield batch[name].to_arrow()


def _embedded(embed: Embedder, batches: Iterable[pa.Array], source: str) -> Iterator[pa.Table]:
    row = 0
    for batch in batches:
        try:
            yield embed(batch)
        except ValueError as error:
            raise ValueError(f"{source}, counted from row {row:,} on: {error}") from None
        row += len(batch)


def _ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, made in a thread of their own before they are asked for, a few at most."""
    end: Any = object()
    with ThreadPoolExecutor(1) as thread:
        waiting = deque(thread.submit(next, items, end) for _ in range(_AHEAD))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(thread.submit(next, items, end))
            yield item
