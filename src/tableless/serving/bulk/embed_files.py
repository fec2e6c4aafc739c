"""Vectors for any number of ids: parquet to parquet, in bounded memory, on this machine or many, restartable.

    --ids → find_sources → plan_blocks → take_up (which are finished?) → an engine: read, embed, write each block

A block is some row groups of an input file and becomes one part file, which appears whole or not at all. So every part
that is there after a crash is right, and the same command goes on with what is missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...recommender.run_directory import RunDirectory, Side
from .blocks import BLOCK_ROWS, EmbedJobSettings, finish, plan_blocks, take_up
from .engines import Job, run_here, run_on_ray
from .places import find_sources, locate, without_secrets
from .vectors import Embedder, id_batches, write_vectors

__all__ = ["Embedded", "Engine", "embed_file", "embed_files"]

Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class Embedded:
    """How many vectors there are now, and how many of them were there already."""

    vectors: int
    found: int


def embed_files(
    run: str | os.PathLike[str],
    ids: str,
    out: str,
    *,
    side: Side,
    column: str | None = None,
    engine: Engine = "local",
    address: str | None = None,
    block_rows: int = BLOCK_ROWS,
    on_block: Callable[[int, int], None] | None = None,
) -> Embedded:
    """Write the vectors of all ids in parquet files to a directory of parquet files with columns `id` and `vector`.

    `ids` is a file, a directory or a pattern with `*`, `out` a directory; both may be URIs. Called again, it goes on
    with what is missing; for another model or other options it refuses. `address` is that of a Ray cluster.
    `on_block` is told how many vectors are there, of how many.
    """
    base, sources = find_sources(ids)
    target = locate(out)
    if target.path != base.path:  # vectors written below the directory of the ids are not ids
        sources = {name: sources[name] for name in sources if not (base / name).path.startswith(f"{target.path}/")}
    settings = EmbedJobSettings(
        model=RunDirectory(run).fingerprint(),
        ids=without_secrets(ids) if "://" in ids else os.path.abspath(ids),
        side=side,
        column=column,
        block_rows=block_rows,
    )
    blocks = plan_blocks(base, sources, column=column, block_rows=block_rows)
    if not blocks:
        raise ValueError(f"{without_secrets(ids)} holds no ids")
    finished = take_up(target, settings, sources)
    pending = [block for block in blocks if block.part not in finished]
    total = sum(block.rows for block in blocks)
    found = done = total - sum(block.rows for block in pending)
    if pending:
        job = Job(Path(run), base, target, side, column)
        for vectors in run_here(job, pending) if engine == "local" else run_on_ray(job, pending, address=address):
            done += vectors
            if on_block:
                on_block(done, total)
    finish(target, settings, vectors=done)
    return Embedded(done, found)


def embed_file(run: str | os.PathLike[str], ids: str, out: str, *, side: Side, column: str | None = None) -> Embedded:
    """Write the vectors of the ids in one parquet, CSV or text file (an id a line) to one parquet file."""
    base, sources = find_sources(ids)
    if len(sources) > 1:
        shown, target = without_secrets(ids), without_secrets(out)
        raise ValueError(f"{shown} are {len(sources)} files, and {target} is one; give a directory as --out")
    (name,) = sources
    embed = Embedder(RunDirectory(run).read(), side)
    batches = id_batches(base / name, column, kind=embed.kind)
    return Embedded(write_vectors(embed, batches, locate(out), source=name), 0)
