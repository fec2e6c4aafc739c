"""Blocks: what is embedded at once, by one worker, into one part file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from .files import Place
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
    """All blocks of all files, in order. A file without the column is named now, not after hours of work."""
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
