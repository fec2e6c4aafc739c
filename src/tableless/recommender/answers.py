"""What a trained run is for: vectors for any number of ids, known and new."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from ..embedding.ids import to_ids
from ..embedding.lookup import find
from .checkpoint import load_run

if TYPE_CHECKING:
    import polars as pl

Side = Literal["user", "item"]
_BATCH = 16_384


class TrainedRun:
    """A run directory, ready to answer. Raw ids go in as the data had them, strings or integers."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        import polars as pl

        self.directory = Path(directory)
        self.model, self.config = load_run(self.directory)
        self.items = pl.read_parquet(self.directory / "items.parquet")  # item (its raw id), id, actions
        self._rows: dict[str, tuple[Tensor, Tensor]] = {}

    def inputs(self, side: Side, raw: Any) -> Tensor:
        """Raw ids -> what the scheme of that side is asked: ids, or the rows of a closed scheme's table."""
        ids = to_ids(raw)
        scheme = self.model.users if side == "user" else self.model.items
        if scheme.open_vocabulary:
            return ids
        listed, row = self._rows_by_id(side)
        position, known = find(ids, listed)
        if not bool(known.all()):
            first = int((~known).reshape(-1).nonzero()[0])
            raise ValueError(
                f"this run's table has no row for {side} number {first + 1} of those asked for: it was not in the "
                "training data. A scheme that is open to new ids, such as dhe, would answer"
            )
        return row[position]

    def parse(self, side: Side, text: str) -> int | str:
        """A raw id typed by a person, in the kind the data has."""
        if self.config["kinds"][side] == "string":
            return text
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{side} ids are integers in this data; {text!r} is none") from None

    def embed(self, side: Side, raw: Any) -> Tensor:
        """Vectors [n, embedding_dim] of raw ids."""
        scheme = self.model.users if side == "user" else self.model.items
        with torch.no_grad():
            return scheme(self.inputs(side, raw))

    def listed(self, side: Side) -> pl.DataFrame:
        """The ids of a side that the run lists and can answer for: `id`; of items also `item`, the raw id, and (unless
        it was trained on a stream) `actions`. Users are listed only where a scheme has a row for each.
        """
        import polars as pl

        path = self.directory / "users.parquet"
        if side == "user" and not path.exists():
            raise ValueError(f"{self.directory} does not list its users; its scheme needs no list, and has none")
        frame = self.items if side == "item" else pl.read_parquet(path)
        scheme = self.model.users if side == "user" else self.model.items
        # After a global-time split, those that were new at test time stand behind the others and have no rows.
        return frame if scheme.open_vocabulary else frame.head(scheme.config["vocab_size"])

    def _rows_by_id(self, side: Side) -> tuple[Tensor, Tensor]:
        """The ids of a closed scheme's rows in ascending order, and the row of each."""
        if side not in self._rows:
            ids, row = torch.sort(to_ids(self.listed(side)["id"]))
            self._rows[side] = ids, row
        return self._rows[side]


def embed_file(
    run: TrainedRun,
    source: Path,
    target: Path,
    *,
    side: Side,
    column: str | None = None,
    on_batch: Callable[[int], None] | None = None,
) -> int:
    """Write the vectors of the ids in a file's column to parquet, a batch at a time; returns how many."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    dim = run.model.users.embedding_dim
    part, done, writer = target.with_name(target.name + ".part"), 0, None
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        for ids in _id_batches(source, column):
            vectors = run.embed(side, ids)
            flat = pa.array(vectors.reshape(-1).numpy())
            table = pa.table({"id": ids.to_arrow(), "vector": pa.FixedSizeListArray.from_arrays(flat, dim)})
            writer = writer or pq.ParquetWriter(part, table.schema)
            writer.write_table(table)
            done += len(ids)
            if on_batch:
                on_batch(done)
        if writer is None:
            raise ValueError(f"{source} holds no ids")
        writer.close()
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return done


def _id_batches(source: Path, column: str | None) -> Iterator[pl.Series]:
    """The ids of a parquet, CSV or plain text file (an id a line), in batches."""
    import polars as pl

    if not source.exists():
        raise FileNotFoundError(f"there is no file {source}")
    suffix = source.suffix.lower()
    if suffix == ".parquet":
        frame = pl.scan_parquet(source)
    elif suffix in (".csv", ".tsv"):
        frame = pl.scan_csv(source, separator="\t" if suffix == ".tsv" else ",")
    else:
        frame = pl.scan_csv(source, has_header=False, new_columns=["id"])
    names = frame.collect_schema().names()
    chosen = column or ("id" if "id" in names else names[0])
    if chosen not in names:
        raise ValueError(f"{source} has no column {chosen!r}; it has {', '.join(names)}")
    for batch in frame.select(chosen).collect_batches(chunk_size=_BATCH, maintain_order=True):
        yield batch[chosen]
