"""The plan of a job: blocks, of which each becomes one part file, and the manifest, by which a restart goes on.

A block is what one worker embeds at once. The manifest says what the vectors of a directory were made from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from .places import Place, Source, without_secrets
from .vectors import choose_column

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
