"""Vectors for any number of ids: parquet to parquet, in bounded memory, on this machine or many, restartable.

    --ids → find_sources → plan_blocks → take_up (which are finished?) → an engine: read, embed, write each block

A block is some row groups of an input file and becomes one part file, which appears whole or not at all. So every part
that is there after a crash is right, and the same command goes on with what is missing.

Blocks are embedded on this machine, or with Ray on all machines of a cluster. The same worker embeds every
block in both cases.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ...hints import install_hint
from ...recommender.run_directory import RunDirectory, Side
from .id_blocks import (
    BLOCK_ROWS,
    Block,
    Embedder,
    EmbedJobSettings,
    finish,
    id_batches,
    plan_blocks,
    take_up,
    write_vectors,
)
from .paths_and_uris import Place, find_sources, locate, without_secrets

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


_FEWEST_CPUS = 2  # with one CPU, Ray Data waits for ever for a second one


def run_on_ray(job: Job, blocks: Sequence[Block], *, address: str | None = None) -> Iterator[int]:
    """Yields how many vectors each block has as it is done, in any order; errors of blocks are raised at the end.

    The cluster is at `address` or $RAY_ADDRESS; without either, one is started on this machine for as long as this
    takes. The run directory travels to the workers; ids and output must be in places that all of them reach.
    """
    try:
        import ray
        import ray.data
    except ImportError:
        raise ImportError(f"--engine ray needs Ray: {install_hint('scale')}") from None

    worker: Any = _RayWorker  # Ray makes an actor of a class; its types only know functions
    with connected(ray, address):
        files = {path.name: path.read_bytes() for path in RunDirectory(job.run).travelling()}
        done = ray.data.from_items([asdict(block) for block in blocks], override_num_blocks=len(blocks)).map(
            worker,
            fn_constructor_args=(job, ray.put(files)),
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=len(blocks)),
            num_cpus=1,
        )
        errors = []
        for row in done.iter_rows():
            if row["error"]:
                errors.append(row["error"])
            else:
                yield row["vectors"]
        if errors:
            raise ValueError(f"{errors[0]} (and {len(errors) - 1} more)" if len(errors) > 1 else errors[0])


class _RayWorker:
    """A `BlockWorker` on another machine. An error comes back as a sentence, without Ray's own stack around it."""

    def __init__(self, job: Job, files: Any) -> None:
        import ray

        self._directory = tempfile.TemporaryDirectory(prefix="tableless-")
        for name, content in ray.get(files).items():
            (Path(self._directory.name) / name).write_bytes(content)
        self._work = BlockWorker(replace(job, run=Path(self._directory.name)))

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"vectors": self._work(Block(**row)), "error": ""}
        except (ValueError, OSError) as error:
            return {"vectors": 0, "error": str(error)}


@contextmanager
def connected(ray: Any, address: str | None) -> Iterator[None]:
    """Connect to Ray at an address, or start it here, unless it runs already; afterwards end what was begun."""
    if ray.is_initialized():
        yield
        return
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # it logs every plan and every setting
    ray.data.DataContext.get_current().enable_progress_bars = False
    settings: dict[str, Any] = {"logging_level": logging.WARNING, "log_to_driver": False}
    if address or os.environ.get("RAY_ADDRESS"):
        ray.init(address=address, **settings)
    else:
        cpus = max(_FEWEST_CPUS, os.cpu_count() or 1)
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, **settings)
    try:
        yield
    finally:
        ray.shutdown()


_BLOCKS_AT_ONCE = 2  # while one is opened or closed, the other computes: small files are mostly opening and closing


@dataclass(frozen=True)
class Job:
    """What does not change from block to block."""

    run: Path
    base: Place  # names of sources are relative to it
    out: Place
    side: Side
    column: str | None


class BlockWorker:
    """Embeds block after block, with a model that is loaded once."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._embed = Embedder(RunDirectory(job.run).read(), job.side)

    def __call__(self, block: Block) -> int:
        """Write the part of a block; returns how many vectors it has."""
        place, groups = self._job.base / block.source, range(block.first, block.stop)
        batches = id_batches(place, self._job.column, kind=self._embed.kind, row_groups=groups)
        return write_vectors(self._embed, batches, self._job.out / block.part, source=block.source)


def run_here(job: Job, blocks: Sequence[Block]) -> Iterator[int]:
    """The local engine: on all of torch's threads; yields the vectors of each block, in order."""
    with ThreadPoolExecutor(_BLOCKS_AT_ONCE) as threads:
        yield from threads.map(BlockWorker(job), blocks)
