"""Blocks of ids: the plan of a job, and how the ids of a block become vectors.

Each block becomes one part file. The manifest says what is finished, so that a restart goes on from there. Within a
block, reading, computing and writing go on at once, a batch at a time.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from ...embedding.ids import to_ids
from ...recommender.run_directory import Side, StoredRun
from ..fast_embedding import FastEmbedding
from .paths_and_uris import Place, Source, without_secrets

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_ROWS = 1_000_000
"""A block takes row groups until it has this many rows: seconds of work, which is what a restart may lose."""

_FILES_AT_ONCE = 16  # opened while planning: in a bucket each takes a while


@dataclass(frozen=True)
class Block:
    """Row groups `first` to `stop` of a parquet file. Plain values: it travels to other machines."""

    source: str
    first: int
    stop: int
    rows: int
    part: str


def plan_blocks(base: Place, sources: Iterable[str], *, column: str | None, block_rows: int) -> list[Block]:
    """All blocks of all files, in order. A file without the column is refused now, not after hours of work."""
    for name in sources:
        if not name.endswith(".parquet"):
            raise ValueError(
                f"{name} is not a .parquet file, and only those are embedded part by part into a directory; "
                "give --out NAME.parquet for a single file, or convert it"
            )
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        planned = pool.map(lambda name: _blocks_of(base, name, column, block_rows), sources)
        return [block for blocks in planned for block in blocks]


def is_part_of(part: str, source: str) -> bool:
    """Does a part file hold vectors of this source?"""
    return re.fullmatch(re.escape(source.removesuffix(".parquet")) + r"-\d{5,}\.parquet", part) is not None


def _blocks_of(base: Place, source: str, column: str | None, block_rows: int) -> list[Block]:
    import pyarrow.parquet as pq

    place = base / source
    with pq.ParquetFile(place.path, filesystem=place.filesystem) as file:
        choose_column(source, file.schema_arrow.names, column)
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    blocks: list[Block] = []
    first = rows = 0
    for group, size in enumerate(sizes):
        rows += size
        if rows and (rows >= block_rows or group == len(sizes) - 1):
            part = f"{source.removesuffix('.parquet')}-{len(blocks):05d}.parquet"
            blocks.append(Block(source, first, group + 1, rows, part))
            first, rows = group + 1, 0
    return blocks


MANIFEST = "_manifest.json"  # readers of parquet directories pass over names that start so


@dataclass(frozen=True)
class EmbedJobSettings:
    """What all vectors in a directory have in common."""

    model: str  # its fingerprint
    ids: str  # without secrets: the manifest is for others to read, and a key may change
    side: str
    column: str | None
    block_rows: int


def take_up(out: Place, settings: EmbedJobSettings, sources: Mapping[str, Source]) -> set[str]:
    """Begin in a directory, or go on with it: returns the parts that are finished and need not be written again.

    Parts that were cut off are removed, and so are the parts of a source that has changed since. The parts of a source
    that no longer exists stay.
    """
    there = out.files()
    before = _read(out) if MANIFEST in there else None
    if before is None and any(name.endswith(".parquet") for name in there):
        raise FileExistsError(f"{out.path} holds parquet files that are not from `tableless embed`; give another --out")
    known: dict[str, Any] = {}
    if before is not None:
        _refuse_other_work(out, before["settings"], asdict(settings))
        known = before["sources"]
    described = {name: asdict(source) for name, source in sources.items()}
    changed = [name for name in described if known.get(name, described[name]) != described[name]]
    stale = {name for name in there if name.endswith(".part") or any(is_part_of(name, source) for source in changed)}
    for name in stale:
        out.filesystem.delete_file((out / name).path)
    _write(out, settings, {**known, **described}, vectors=None)
    return {name for name in there if name.endswith(".parquet")} - stale


def finish(out: Place, settings: EmbedJobSettings, *, vectors: int) -> None:
    """Say that all parts are there."""
    _write(out, settings, _read(out)["sources"], vectors=vectors)


def _read(out: Place) -> dict[str, Any]:
    try:
        content = json.loads((out / MANIFEST).read())
        # Older manifests have the URI as it was given.
        settings = {**content["settings"], "ids": without_secrets(content["settings"]["ids"])}
        return {"settings": settings, "sources": content["sources"], "vectors": content["vectors"]}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{out.path}/{MANIFEST} is damaged; give another --out, or delete {out.path}") from None


def _write(out: Place, settings: EmbedJobSettings, sources: Mapping[str, Any], *, vectors: int | None) -> None:
    """`vectors` is None until all are there."""
    content = {"settings": asdict(settings), "vectors": vectors, "sources": sources}
    with (out / MANIFEST).written_whole() as stream:
        stream.write(json.dumps(content, indent=2).encode() + b"\n")


def _refuse_other_work(out: Place, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    for key in ours:
        if theirs.get(key) != ours[key]:
            raise ValueError(
                f"{out.path} was begun with another {key} ({theirs.get(key)} instead of {ours[key]}), and would hold "
                f"vectors of two kinds; give another --out, or delete {out.path} to begin again"
            )


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
