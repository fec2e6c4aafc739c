"""Coded rows: a few bits for each id, found without a list of the ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from ..budget import Allowance, Budget, fit_to_budget, resolve_budget
from ..hashing import derive_seed, mix_ids
from ..id_batches import checked_ids
from ..id_rows import IdRows
from ..scheme import INITIAL_STD, EmbeddingScheme, Precision, Served, seeded
from ..trellis import MOST_BITS, expected_loss
from .coded_rows import LONGEST_WINDOW, SAMPLE, CodedRows
from .frequent_rows import FrequentRows
from .shared_rows import mean_of_sharers

_GAIN_BITS = 4
_LEVELS_SHARE, _ROTATION_SHARE = 64, 32  # levels and rotation take at most this part of a budget
_CHECK = 0x6A09E667F3BCC908  # makes the check bits independent of the hash that finds the row


class CodedEmbedding(EmbeddingScheme):
    """Rows of `num_bits` bits, for the vectors of a trained table (`tableless.distil`): the smallest at its accuracy.

    `IdRows` finds the row of an id without storing ids, and a trellis code (trellis.py) makes a vector of its bits. An
    id that was not put in gets the vector of another one. With check bits most such ids are noticed, all but one in
    2^`check_bits`, and get the mean vector. `add` takes more ids later.

    Args:
        embedding_dim: Dimensions of a vector.
        vocab_size: How many ids there is room for.
        num_bits: Bits of a row: gain, check bits and direction together.
        gain_bits: Bits for the length of a vector.
        check_bits: Bits that tell ids that were put in from others.
        window: How many bits a dimension reads.
        rotated: Keep a matrix that turns decoded vectors. Without it the dimensions are coded as they are, and those of
            the table should be independent of each other, as those of `GMF.targets` are.
        num_added: How many ids `add` has taken.
        initial_std: The standard deviation of the vectors before a fit.
        seed: Everything random follows from it.

    Example:
        ```python
        import torch
        from tableless import distil, to_ids
        from tableless.embedding.tables import CodedEmbedding

        names, table = [f"user_{i}" for i in range(2_000)], torch.randn(2_000, 16)
        coded = CodedEmbedding.from_budget("6B/id", embedding_dim=16, vocab_size=2_000)
        distil(table, coded, ids=to_ids(names))
        print(coded(to_ids("user_42")), coded.num_bytes)
        ```
    """

    open_vocabulary = True
    needs_table = True
    rounds_rows = True
    without_lengths: ClassVar[Mapping[str, Any]] = {"gain_bits": 0}

    def __init__(
        self,
        embedding_dim: int,
        *,
        vocab_size: int,
        num_bits: int,
        gain_bits: int = 4,
        check_bits: int = 0,
        window: int = LONGEST_WINDOW,
        rotated: bool = False,
        num_added: int = 0,
        initial_std: float = INITIAL_STD,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.vocab_size = vocab_size
        self.num_bits = num_bits
        self.gain_bits = gain_bits
        self.check_bits = check_bits
        self.window = window
        self.rotated = rotated
        self.num_added = num_added
        self.initial_std = initial_std
        self.seed = seed
        self.finder = IdRows(vocab_size, derive_seed(seed, "rows"))
        self.rows = CodedRows(
            vocab_size,
            embedding_dim,
            num_bits=num_bits,
            gain_bits=gain_bits,
            check_bits=check_bits,
            window=window,
            rotated=rotated,
            initial_std=initial_std,
            seed=seed,
        )
        self.unknown = nn.Parameter(torch.zeros(embedding_dim)) if check_bits else None
        self.added = self._room_for(num_added) if num_added else None

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 or int32 [...] -> [..., embedding_dim], in the type of the levels."""
        ids = checked_ids(ids)
        flat = ids.reshape(-1)
        if self.rows.has_kernels(flat) and self.rows.levels.dtype == torch.float32 and not torch.is_grad_enabled():
            vectors = _in_one_pass(flat.contiguous(), self._arrays(), self.rows)
        else:
            vectors = self.rows(self.finder(flat))
        if self.unknown is not None:
            begin = self.finder(flat) * self.num_bits + self.gain_bits
            is_known = self.rows.read(begin, self.check_bits) == self._checks(flat)
            vectors = torch.where(is_known.unsqueeze(-1), vectors, self.unknown)
        if self.added is not None:
            own, is_added = self.added(flat)
            vectors = torch.where(is_added.unsqueeze(-1), own, vectors)
        return vectors.view(*ids.shape, self.embedding_dim)

    def served(self, precision: Precision, sample_ids: Tensor) -> Served:
        """The compiled loop alone, if nothing else decides: no check bits, and no ids that were added."""
        if self.unknown is not None or self.added is not None or self.rows.levels.dtype != torch.float32:
            return Served(self)
        arrays = self._arrays()
        return Served(lambda ids: _in_one_pass(ids, arrays, self.rows))

    def _arrays(self) -> tuple[Any, ...]:
        finder = self.finder
        return int(finder.key), finder.cells.numpy(), finder.ranks.numpy(), finder.sizes, *self.rows.arrays()

    def _checks(self, ids: Tensor) -> Tensor:
        """The check bits of ids: lower bits of another hash than the one that finds the row."""
        return mix_ids(ids ^ _CHECK) & ((1 << self.check_bits) - 1)

    @torch.no_grad()
    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """Code the rows, whatever was coded before. Errors count by the square of the metric, as in scores."""
        distinct, place = torch.unique(ids, return_inverse=True)
        if len(distinct) > self.vocab_size:
            raise ValueError(f"{len(distinct)} ids do not fit into vocab_size={self.vocab_size}; make it larger")
        if len(distinct) < len(ids):
            rows, weights = mean_of_sharers(place, rows, weights, len(distinct))
            order = torch.arange(len(distinct))
        else:  # rows stay where they are, because they may be a file that is larger than memory
            distinct, order = ids, place.argsort()
        places, checks = self.finder.build(distinct).numpy(), self._checks(distinct).numpy()
        settings: dict[str, Any] = {"metric": metric, "weights": weights, "on_rows": self.on_rows}
        mean = self.rows.write(rows, places, checks, order=order, **settings)
        if self.unknown is not None:
            self.unknown.copy_(torch.from_numpy(mean))
        return self, torch.zeros_like(ids, dtype=torch.bool)

    def add(self, ids: Tensor, rows: Tensor) -> None:
        """Take more ids, or other vectors for ids that are there, as float32 rows beside the codes.

        Such a row takes far more bytes than a code. After many additions, code all rows anew with `tableless.distil`.

        Args:
            ids: Distinct ids, int64 [n].
            rows: Their vectors, [n, embedding_dim].

        Raises:
            ValueError: An id is there twice, or there are not as many rows.
        """
        if len(ids) != len(rows) or rows.shape[-1] != self.embedding_dim or len(torch.unique(ids)) < len(ids):
            raise ValueError(
                f"{len(ids)} ids, of which {len(torch.unique(ids))} are distinct, and rows of shape "
                f"{tuple(rows.shape)}; give distinct ids, and a row of {self.embedding_dim} numbers for each"
            )
        if self.added is not None:
            is_kept = ~torch.isin(self.added.ids, ids)
            ids = torch.cat([self.added.ids[is_kept], ids])
            before = self.added.get_parameter("table").detach()
            rows = torch.cat([before[is_kept], rows.to(before)])
        order = ids.argsort()
        self.num_added = len(ids)
        self.added = self._room_for(len(ids)).to(self.rows.levels)
        self.added.ids = ids[order].clone()
        self.added.table = nn.Parameter(rows[order].detach().to(self.rows.levels).clone())

    def _room_for(self, num_ids: int) -> FrequentRows:
        return FrequentRows(num_ids, self.embedding_dim, std=self.initial_std, generator=seeded(self.seed))

    def part_of(self, name: str) -> str:
        """The map from ids to rows, codes, codebooks, rows that were added."""
        parts = {"finder": "id map", "added": "added rows"}
        return "codes" if name == "rows.codes" else parts.get(name.partition(".")[0], "codebooks")

    @classmethod
    def for_rows(cls, budget: Budget, rows: Tensor, *, seed: int = 0, check_bits: int = 0) -> Self:
        """Turned if these rows are worth the bytes of the rotation: if that leaves less variance at equal bytes."""
        sizes: dict[str, Any] = {"embedding_dim": rows.shape[-1], "vocab_size": len(rows), "check_bits": check_bits}
        if rows.is_meta or len(rows) < 2:
            return cls.from_budget(budget, **sizes, seed=seed)
        chosen = np.random.default_rng(seed % 2**63).choice(len(rows), min(SAMPLE, len(rows)), replace=False)
        sample = F.normalize(rows[torch.from_numpy(np.sort(chosen))].detach().cpu().double(), dim=-1).numpy()
        if not np.isfinite(sample).all():
            return cls.from_budget(budget, **sizes, seed=seed)
        covariance = np.atleast_2d(np.cov(sample.T, ddof=0))
        with torch.device("meta"):
            plain = cls.from_budget(budget, **sizes, rotated=False)
            try:
                turned = cls.from_budget(budget, **sizes, rotated=True)
            except ValueError:  # the matrix alone is too large
                turned = plain
        most = min(MOST_BITS, plain.window)
        lost = expected_loss(covariance.diagonal(), plain.rows.direction_bits, most=most)
        powers = np.linalg.eigvalsh(covariance).clip(0)
        is_better = turned.rotated and expected_loss(powers, turned.rows.direction_bits, most=most) < lost
        return cls.from_budget(budget, **sizes, seed=seed, rotated=is_better)

    @classmethod
    def from_budget(
        cls,
        budget: Budget,
        *,
        embedding_dim: int,
        vocab_size: int,
        seed: int = 0,
        gain_bits: int = _GAIN_BITS,
        check_bits: int = 0,
        rotated: bool | None = None,
    ) -> Self:
        """As many bits for each id as the budget pays for. A budget in parameters counts four bytes for each.

        Levels and rotation are as large as suits the budget: a small vocabulary has short windows, and is not turned
        unless `rotated` says so. If the rows are there, `for_rows` decides better.
        """
        allowed = resolve_budget(budget, embedding_dim=embedding_dim, vocab_size=vocab_size)
        allowed = Allowance(allowed.num_bytes, "bytes")
        if rotated is None:
            rotated = 4 * embedding_dim**2 * _ROTATION_SHARE <= allowed.amount
        longest = max(4, min(LONGEST_WINDOW, (allowed.amount // (4 * _LEVELS_SHARE)).bit_length() - 1))
        spent = gain_bits + check_bits

        def build(direction: int) -> Self:  # type: ignore[type-var]
            return cls(
                embedding_dim,
                vocab_size=vocab_size,
                num_bits=direction + spent,
                gain_bits=gain_bits,
                check_bits=check_bits,
                window=min(longest, direction),
                rotated=rotated,
                seed=seed,
            )

        return fit_to_budget(build, allowed, largest=embedding_dim * min(MOST_BITS, longest))


def _in_one_pass(ids: Tensor, arrays: tuple[Any, ...], rows: CodedRows) -> Tensor:
    """From ids [n] to vectors [n, embedding_dim] by the compiled loop."""
    from ...kernels import trellis as loops

    out = torch.empty(len(ids), rows.embedding_dim)
    loops.find_and_decode(ids.numpy(), *arrays, out.numpy())  # type: ignore[call-arg]
    return rows.turned(out)
