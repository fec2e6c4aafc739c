"""`compress`: trained vectors of any kind become a scheme of a few bytes for each id, and it says what is lost."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..embedding.budget import Budget, resolve_budget
from ..embedding.distillation import PoorFitWarning, distil
from ..embedding.fit_progress import FitProgress
from ..embedding.ids import to_ids
from ..embedding.scheme import EmbeddingScheme
from ..embedding.schemes import SCHEMES
from ..hints import require_known_name
from .scheme_directory import save_scheme
from .vector_files import read_vectors
from .vector_rows import Tell, VectorLosses, VectorRows, block_rows, float_rows, measure_losses


@dataclass(frozen=True)
class CompressedVectors:
    """Vectors that `tableless.compress` has made small. It answers by raw id: `result["king"]`.

    Attributes:
        scheme: What answers, with `tableless.to_ids` before it.
        losses: What was lost: `mean_cosine`, `inner_product_error`, `recall_at_10` and `recall_at_10_exact_queries`.
        num_vectors: How many vectors there are.
        bytes_before: What the vectors took, without their ids. Numbers that were text count four bytes.
        seconds: How long it took.
        are_strings: Are the raw ids strings (or bytes)? Else they are integers.

    Example:
        ```python
        import torch
        from tableless import compress

        small = compress(torch.randn(5_000, 8) @ torch.randn(8, 32), "1/8")
        print(small.bytes_per_id, small.losses.mean_cosine, small[42].shape)
        ```
    """

    scheme: EmbeddingScheme
    losses: VectorLosses
    num_vectors: int
    bytes_before: int
    seconds: float
    are_strings: bool

    @property
    def bytes(self) -> int:
        """All that is stored: codes, codebooks, and what finds the code of an id."""
        return self.scheme.num_bytes

    @property
    def bytes_per_id(self) -> float:
        """The same for each vector."""
        return self.bytes / self.num_vectors

    def vectors(self, raw_ids: Any) -> Tensor:
        """The vectors of raw ids [...], in any form that `tableless.to_ids` takes: float32 [..., embedding_dim]."""
        if _are_strings(raw_ids) is not self.are_strings:
            kind, given = ("strings", "integers") if self.are_strings else ("integers", "strings")
            raise ValueError(f"these vectors have {kind} as ids, and {given} were given; 7 and '7' are different ids")
        with torch.no_grad():
            return self.scheme(to_ids(raw_ids))

    def __getitem__(self, raw_id: Any) -> Tensor:
        return self.vectors(raw_id)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write `config.json` and `model.safetensors`, which `tableless.load_scheme` reads."""
        save_scheme(self.scheme, directory)

    def as_dict(self) -> dict[str, Any]:
        """The figures, as plain values."""
        sizes = {"bytes_before": self.bytes_before, "bytes": self.bytes, "bytes_per_id": self.bytes_per_id}
        shape = {"num_vectors": self.num_vectors, "embedding_dim": self.scheme.embedding_dim}
        return {**shape, **sizes, **asdict(self.losses), "seconds": self.seconds}


def compress(
    table: str | os.PathLike[str] | NDArray[Any] | Tensor | nn.Embedding,
    budget: Budget = "8B/id",
    *,
    ids: Any = None,
    vectors: str | None = None,
    scheme: str = "coded",
    check_bits: int = 0,
    out: str | os.PathLike[str] | None = None,
    progress: Tell | None = None,
    seed: int = 0,
) -> CompressedVectors:
    """Make trained vectors small, and measure what is lost.

    The vectors may be more than fit into memory: they are read from the file in blocks.

    Args:
        table: The vectors, a row for each id: an array (also a mapped file), a tensor, an `nn.Embedding`, or the path
            of a file (.npy, .safetensors, .parquet, word2vec as .bin or text, GloVe).
        budget: The size, most often in bytes for each id.
        ids: The raw ids of the rows, strings or integers. Unless given, they are those of the file, or else 0, 1, 2, …
            For a parquet file, the name of a column; for .npy and .safetensors, a path: text with an id in each line,
            or .npy with integers.
        vectors: The name of a tensor or of a column of lists, if a file has several.
        scheme: A name of `tableless.SCHEMES`.
        check_bits: For `coded`: bits that tell other ids from those that were put in. All but one in 2^check_bits of
            them get the mean vector. Without, they get the vector of some id.
        out: Write the result to this directory.
        progress: Is called with what is being done, how much of it is done, and how much there is (or None).
        seed: Everything random follows from it.

    Returns:
        The scheme, its size and what was lost.

    Raises:
        ValueError: The file is damaged or of an unknown kind, rows have different lengths, a number is not finite, an
            id is there twice, or the budget is too small or larger than the vectors.

    Example:
        ```python
        import numpy as np
        from tableless import compress, load_scheme, to_ids

        words = [f"word{i}" for i in range(3_000)]
        vectors = np.random.default_rng(0).normal(size=(3_000, 32)).astype("float32")
        small = compress(vectors, "8B/id", ids=words, out="out/words")
        print(small.bytes, small.losses.recall_at_10, small["word7"])
        vector = load_scheme("out/words")(to_ids("word7"))  # the same, later
        ```
    """
    start = time.perf_counter()
    require_known_name("scheme", scheme, SCHEMES)
    tell = progress or (lambda task, done, total: None)
    source = _source(table, ids, vectors, tell)
    numbers = _distinct(source)
    rows = _checked_rows(source)
    _require_saving(budget, source)
    kind = SCHEMES[scheme]
    if not kind.open_vocabulary and not torch.equal(numbers, torch.arange(len(rows))):
        open_ones = ", ".join(name for name, each in SCHEMES.items() if each.open_vocabulary)
        raise ValueError(
            f"{scheme!r} finds rows by their numbers 0, 1, 2, …, and these ids are others; take {open_ones}"
        )
    small = kind.for_rows(budget, rows, seed=seed, check_bits=check_bits)
    _fit(small, rows, numbers, tell, seed)

    def decode(part: slice) -> Tensor:
        with torch.no_grad():
            return small(numbers[part]).float()

    losses = measure_losses(rows, decode, seed=seed, on_rows=lambda done, total: tell("measuring", done, total))
    seconds = time.perf_counter() - start
    result = CompressedVectors(small, losses, len(rows), source.num_bytes, seconds, _are_strings(source.ids))
    if out is not None:
        result.save(out)
    return result


def _source(table: Any, ids: Any, vectors: str | None, tell: Tell) -> VectorRows:
    if isinstance(table, (str, os.PathLike)):
        named = ids if ids is None or isinstance(ids, str) else os.fspath(ids) if isinstance(ids, os.PathLike) else None
        source = read_vectors(Path(table), ids=named, vectors=vectors, tell=tell)
        return source if named is not None or ids is None else VectorRows(source.rows, ids, source.num_bytes)
    if vectors is not None:
        raise ValueError(f"vectors={vectors!r} names a part of a file, and the table is no file; leave it away")
    plain = table.weight if isinstance(table, nn.Embedding) else table
    if isinstance(plain, Tensor):
        plain = plain.detach().cpu()
        num_bytes = plain.numel() * plain.element_size()
        rows = float_rows((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy(), "the table", tell)
    else:
        plain = np.asanyarray(plain)  # a mapped file stays one
        rows, num_bytes = float_rows(plain, "the table", tell), plain.nbytes
    return VectorRows(rows, np.arange(len(rows)) if ids is None else ids, num_bytes)


def _distinct(source: VectorRows) -> Tensor:
    """The ids as 64-bit numbers, of which none is there twice."""
    numbers = to_ids(source.ids)
    if numbers.shape != (len(source.rows),):
        raise ValueError(f"there are {numbers.numel()} ids and {len(source.rows)} vectors; give an id for each vector")
    ordered, places = numbers.sort(stable=True)
    again = (ordered[1:] == ordered[:-1]).nonzero()
    if len(again):
        first, second = places[again[0, 0]].item(), places[again[0, 0] + 1].item()
        raise ValueError(
            f"the id {_shown(source.ids[first])} is in row {first} and again in row {second} ({len(again):,} "
            "repeats in all); an id has one vector, so keep one row of each"
        )
    return numbers


def _checked_rows(source: VectorRows) -> Tensor:
    if len(source.rows) < 2 or not source.rows.shape[1]:
        raise ValueError(f"the vectors have shape {source.rows.shape}; there must be at least 2, with 1 number or more")
    step = block_rows(source.rows.shape[1])
    for start in range(0, len(source.rows), step):
        finite = np.isfinite(source.rows[start : start + step]).all(1)
        if not finite.all():
            row = start + int(np.argmin(finite))
            raise ValueError(
                f"the vector of {_shown(source.ids[row])}, row {row}, has a number that is NaN or infinite; drop it, "
                "or repair it"
            )
    with warnings.catch_warnings():  # torch warns of arrays that cannot be written to; nothing is written here
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(source.rows)


def _require_saving(budget: Budget, source: VectorRows) -> None:
    num_rows, dim = source.rows.shape
    allowed = resolve_budget(budget, embedding_dim=dim, vocab_size=num_rows)
    if allowed.num_bytes >= source.num_bytes:
        smaller = max(1, source.num_bytes // num_rows // 8)
        raise ValueError(
            f"a budget of {budget!r} is {allowed.num_bytes:,} bytes, and the {num_rows:,} vectors take no more than "
            f"{source.num_bytes:,} as they are; give a smaller one, such as '{smaller}B/id'"
        )


def _fit(scheme: EmbeddingScheme, rows: Tensor, numbers: Tensor, tell: Tell, seed: int) -> None:
    on_rows: Callable[[int, int], None] = lambda done, total: tell("coding", done, total)  # noqa: E731

    def on_step(step: FitProgress) -> None:
        tell("fitting", step.done, step.total)

    scheme.on_rows = on_rows
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PoorFitWarning)  # the losses are told anyway
            distil(rows, scheme, ids=numbers, seed=seed, progress=on_step)
    finally:
        scheme.on_rows = None


def _shown(raw_id: Any) -> str:
    """A raw id of a list, or of a column of numpy or Arrow, as a person writes it."""
    plain = getattr(raw_id, "as_py", getattr(raw_id, "item", lambda: raw_id))
    return repr(plain())


def _are_strings(raw_ids: Any) -> bool:
    """Are raw ids, one or a column of them, strings or bytes?"""
    while not isinstance(raw_ids, (str, bytes)) and hasattr(raw_ids, "__getitem__") and not isinstance(raw_ids, Tensor):
        kind = getattr(raw_ids, "dtype", None)
        if isinstance(kind, np.dtype) and kind.kind in "iu":
            return False
        if not len(raw_ids):
            return False
        raw_ids = raw_ids[0]
    return isinstance(getattr(raw_ids, "as_py", lambda: raw_ids)(), (str, bytes))
