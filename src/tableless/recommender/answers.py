"""What a trained run is for: recommendations for a user, vectors for any number of ids."""

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
        listed, row = self._listed(side)
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

    def recommend(self, user: int | str, *, count: int = 10) -> pl.DataFrame:
        """The best items for a user, known or new: item and score."""
        import polars as pl

        inputs = to_ids(self.items["id"]) if self.model.items.open_vocabulary else torch.arange(len(self.items))
        with torch.no_grad():
            vectors = self.model.prepare_items(self.model.item_vectors(inputs))
            person = self.model.prepare_users(self.model.user_vectors(self.inputs("user", [user])))
            best = self.model.score_all(person, vectors)[0].topk(min(count, len(self.items)))
        return pl.DataFrame({"item": self.items["item"].gather(best.indices.numpy()), "score": best.values.numpy()})

    def _listed(self, side: Side) -> tuple[Tensor, Tensor]:
        """The ids of a closed scheme's rows in ascending order, and the row of each."""
        if side not in self._rows:
            import polars as pl

            frame = self.items if side == "item" else pl.read_parquet(self.directory / "users.parquet")
            ids, row = torch.sort(torch.from_numpy(frame["id"].to_numpy().copy()))
            self._rows[side] = ids, row
        return self._rows[side]


def with_titles(rows: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Add a `title` column from a file of metadata: its item column is guessed, its title column is called so."""
    import polars as pl

    from .reading.columns import guess_by_name

    titles = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path)
    item = guess_by_name(titles.columns)["item"]
    title = next((name for name in titles.columns if name.lower() in ("title", "name")), None)
    if item is None or title is None:
        raise ValueError(f"{path} needs a column of item ids and a `title`; it has {', '.join(titles.columns)}")
    names = titles.select(pl.col(item).cast(pl.String).alias("item"), pl.col(title).alias("title"))
    return (
        rows.with_columns(pl.col("item").cast(pl.String).alias("key"))
        .join(names.unique("item"), left_on="key", right_on="item", how="left", maintain_order="left")
        .drop("key")
    )


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
