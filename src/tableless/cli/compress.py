"""`tableless compress`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .app import app
from .options import AsJson

if TYPE_CHECKING:
    from ..files.compression import CompressedVectors


@app.command(epilog="Example: tableless compress glove.txt --budget 16B/id --out small")
def compress(
    file: Annotated[
        Path, typer.Argument(help=".npy, .safetensors, .parquet, word2vec (.bin, .txt, .vec) or GloVe (.txt).")
    ],
    out: Annotated[Path, typer.Option(help="The directory that is written: config.json, model.safetensors.")],
    budget: Annotated[str, typer.Option(help="8B/id, 64MB, or a share of the vectors in float32: 1/16.")] = "8B/id",
    ids: Annotated[
        str | None,
        typer.Option(
            help="The column of a parquet file; or a file with an id a line (or .npy), beside .npy, .safetensors."
        ),
    ] = None,
    vectors: Annotated[
        str | None, typer.Option(help="The tensor, or the column of lists, if there are several.")
    ] = None,
    scheme: Annotated[str, typer.Option(help="How vectors are stored; any scheme that is open to new ids.")] = "coded",
    check_bits: Annotated[
        int, typer.Option(help="So many bits for each id tell others from it: they get the mean vector.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Trained vectors as a small file that answers by raw id, and what is lost."""
    from rich.console import Console
    from rich.progress import Progress

    from ..files import compression

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=as_json or not console.is_terminal) as bar:
        task = bar.add_task("reading", total=None)
        result = compression.compress(
            file,
            budget,
            ids=ids,
            vectors=vectors,
            scheme=scheme,
            check_bits=check_bits,
            out=out,
            progress=lambda doing, done, total: bar.update(task, description=doing, completed=done, total=total),
            seed=seed,
        )
    if as_json:
        print(json.dumps({**result.as_dict(), "out": str(out)}))
        return
    _print_losses(result)
    example = '"king"' if result.are_strings else "42"
    print(
        f"\nfrom tableless import load_scheme, to_ids\nvectors = load_scheme({str(out)!r})\nvectors(to_ids({example}))"
    )


def _print_losses(result: CompressedVectors) -> None:
    losses = result.losses
    print(
        f"{result.num_vectors:,} vectors of {result.scheme.embedding_dim} numbers: {_size(result.bytes_before)} → "
        f"{_size(result.bytes)}, {result.bytes_per_id:.2f} bytes for each id, "
        f"1/{result.bytes_before / result.bytes:.1f}"
    )
    print(f"  mean cosine of a vector and its coded form            {losses.mean_cosine:.4f}")
    print(f"  error of inner products of random pairs               {losses.inner_product_error:.1%}")
    print(f"  of the 10 nearest neighbours (cosine) are still there {losses.recall_at_10:.1%}")
    print(f"  … if queries are exact and only the rest is coded     {losses.recall_at_10_exact_queries:.1%}")


def _size(num_bytes: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} bytes"
