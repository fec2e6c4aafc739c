"""One job: which model embeds which ids into which directory. Every engine calls the same worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ...recommender.answers import Side, TrainedRun
from .blocks import Block
from .files import Place
from .vectors import Embedder, id_batches, write_vectors

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
        self._embed = Embedder(TrainedRun(job.run), job.side)

    def __call__(self, block: Block) -> int:
        """Write the part of a block; returns how many vectors it has."""
        place, groups = self._job.base / block.source, range(block.first, block.stop)
        batches = id_batches(place, self._job.column, kind=self._embed.kind, row_groups=groups)
        return write_vectors(self._embed, batches, self._job.out / block.part, source=block.source)


def run_here(job: Job, blocks: Sequence[Block]) -> Iterator[int]:
    """The local engine: on all of torch's threads; yields the vectors of each block, in order."""
    with ThreadPoolExecutor(_BLOCKS_AT_ONCE) as threads:
        yield from threads.map(BlockWorker(job), blocks)
