"""Product quantization: vectors are split into parts, and each part is one of 16 or 256 that are stored."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ..budget import Budget, fit_to_budget, resolve_budget
from ..id_batches import checked_ids
from ..rounding import HalfNumbers, bytes_for, pack_codes, require_half, unpack_codes
from ..scheme import INITIAL_STD, EmbeddingScheme, Precision, Served, normal, require_known, seeded
from .column_parts import as_points, look_up_parts, metric_roots, part_sizes, parts_of_columns, quantize
from .shared_rows import mean_of_sharers

# A rotation lowered the error of the rows of GMF on MovieLens-1M to .7 of what it was, for 4 and 8 bits alike.
_GAIN_OF_ROTATION = 0.7


class ProductQuantizedEmbedding(EmbeddingScheme):
    """`num_parts` codes of 4 or 8 bits (`bits_per_part`) for each id, each a row of its part's codebook.

    With `rotated`, the vector that the codebooks give is multiplied by a matrix (OPQ): the directions of the vectors
    can then be shared out among the parts, so that each part has as much to tell. Codebooks and rotation are stored as
    float16. Unless it is `packed`, they are float32 numbers that can be trained, and are rounded each time they are
    used. Codes come from k-means on the rows of a table. They are not trained; before a fit they are random.
    """

    open_vocabulary = False
    needs_table = True
    rounds_rows = True
    codes: Tensor  # uint8 [vocab_size, bytes]
    parts: Tensor

    def __init__(
        self,
        embedding_dim: int,
        *,
        vocab_size: int,
        num_parts: int,
        bits_per_part: int = 8,
        rotated: bool = False,
        packed: bool = False,
        initial_std: float = INITIAL_STD,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if bits_per_part not in (4, 8):
            raise ValueError(f"bits_per_part is {bits_per_part}; it must be 4 or 8")
        self.embedding_dim = embedding_dim
        self.vocab_size = vocab_size
        self.num_parts = num_parts
        self.bits_per_part = bits_per_part
        self.rotated = rotated
        self.packed = packed
        self.initial_std = initial_std
        self.seed = seed
        self.register_buffer("parts", parts_of_columns(embedding_dim, num_parts), persistent=False)
        shape, generator = (2**bits_per_part, embedding_dim), seeded(seed)
        books = None if packed else normal(*shape, std=initial_std, generator=generator)
        self.codebooks = HalfNumbers(*shape, values=books)  # the columns of a part are its codebook
        if rotated:
            square = None if packed else nn.Parameter(torch.eye(embedding_dim))
            self.rotation = HalfNumbers(embedding_dim, embedding_dim, values=square)
        codes = torch.zeros(vocab_size, bytes_for(num_parts, bits_per_part), dtype=torch.uint8)
        self.register_buffer("codes", codes if packed else codes.random_(0, 256, generator=generator))

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., embedding_dim]."""
        require_known(ids, self.vocab_size)
        rows = unpack_codes(self.codes[checked_ids(ids)], self.num_parts, self.bits_per_part)
        vectors = look_up_parts(self.codebooks(), rows, self.parts)
        return vectors @ self.rotation() if self.rotated else vectors

    def pack(self) -> None:
        """Round codebooks and rotation for good."""
        self.codebooks.pack()
        if self.rotated:
            self.rotation.pack()
        self.packed = True

    def unpack(self) -> None:
        """Make codebooks and rotation trainable again."""
        self.codebooks.unpack()
        if self.rotated:
            self.rotation.unpack()
        self.packed = False

    @torch.no_grad()
    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """K-means by faiss for each part, in coordinates in which all errors count the same.

        An id without a row gets the codes of the mean row. Without a rotation, what the metric says of two parts
        together is left out.
        """
        require_half(rows)
        self.unpack()
        means, totals = mean_of_sharers(ids, rows, weights, self.vocab_size)
        counted = totals.double().unsqueeze(-1)
        mean = (means.double() * counted).sum(0) / counted.sum()
        there, back = metric_roots(metric, None if self.rotated else self.parts)
        points = torch.where(counted > 0, (means.double() - mean) @ there, 0)
        turn, books, codes = quantize(
            as_points(points),
            as_points(totals),
            part_sizes(self.embedding_dim, self.num_parts),
            bits=self.bits_per_part,
            rotated=self.rotated,
            seed=self.seed,
        )
        turn, books = turn.to(there), books.to(there)
        if self.rotated:
            self.rotation.values.copy_(turn.mT @ back)
            self.codebooks.values.copy_(books + mean @ there @ turn)
        else:
            self.codebooks.values.copy_(books @ back + mean)
        self.codes.copy_(pack_codes(codes.to(self.codes.device), self.bits_per_part))
        return self, torch.zeros_like(ids, dtype=torch.bool)

    def served(self, precision: Precision, sample_ids: Tensor) -> Served:
        """The packed form, whose codebooks need not be rounded at every look-up."""
        return Served(self.stored())

    def exported(self) -> nn.Module:
        """The packed form: a file shall hold what is stored, and no float32 numbers to be rounded."""
        return self.stored()

    def part_of(self, name: str) -> str:
        """Codes, codebooks and the rotation are counted apart."""
        return name.partition(".")[0]

    @classmethod
    def from_budget(cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0) -> Self:
        """The parts, the bits and the rotation that promise the lowest error, among all that the budget pays for.

        The error is known for normal numbers: with b bits for s columns it is 2^(-2b/s) of their variance at best. A
        rotation counts as it did on one table. A budget of parameters counts as four bytes for each of them.
        """
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size).in_bytes
        build = partial(cls, embedding_dim, vocab_size=vocab_size, seed=seed)

        def with_most_parts(bits: int, rotated: bool) -> ProductQuantizedEmbedding:
            kind = partial(build, bits_per_part=bits, rotated=rotated)
            return fit_to_budget(lambda parts: kind(num_parts=parts), allowed, largest=embedding_dim)

        with torch.device("meta"):
            found = [with_most_parts(4, False)]  # if not even one part of these fits, nothing does
            for bits, rotated in ((4, True), (8, False), (8, True)):
                with suppress(ValueError):
                    found.append(with_most_parts(bits, rotated))
        best = min(found, key=lambda one: (one._expected_error(), -one.bits_per_part))
        return cls(**best.config)

    def _expected_error(self) -> float:
        """A share of the variance of the rows, as `from_budget` says."""
        sizes = part_sizes(self.embedding_dim, self.num_parts)
        error = sum(size * 2 ** (-2 * self.bits_per_part / size) for size in sizes) / self.embedding_dim
        return error * (_GAIN_OF_ROTATION if self.rotated else 1)
