"""Coded rows: a few bits for each id, found without a list of the ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Self

from ...kernels import uses_kernels
from ..budget import Allowance, Budget, fit_to_budget, resolve_budget
from ..hashing import derive_seed, mix_ids
from ..id_batches import checked_ids
from ..id_rows import IdRows
from ..scheme import INITIAL_STD, EmbeddingScheme, seeded
from ..trellis import (
    MOST_BITS,
    Doubles,
    TrellisCode,
    expected_loss,
    fit_code,
    share_bits,
    starting_levels,
    write_row,
)
from .frequent_rows import FrequentRows
from .shared_rows import mean_of_sharers

LONGEST_WINDOW = 8
"""Bits. One more doubles the time of coding, and saves one bit in fifty."""
_GAIN_BITS = 4
_LEVELS_SHARE, _ROTATION_SHARE = 64, 32  # levels and rotation take at most this part of a budget
_SAMPLE = 6000  # rows that a code is fitted to
_BLOCK = 1 << 22  # numbers that are coded at once
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
    codes: Tensor
    ends: Tensor

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
        self.direction_bits = num_bits - gain_bits - check_bits
        if not 1 <= window <= min(self.direction_bits, LONGEST_WINDOW) or gain_bits < 0 or not 0 <= check_bits <= 32:
            raise ValueError(
                f"num_bits={num_bits} with gain_bits={gain_bits} and check_bits={check_bits} leaves "
                f"{self.direction_bits} bits for the direction; it needs at least the {window} of a window, and a "
                f"window has 1 to {LONGEST_WINDOW}"
            )
        if self.direction_bits > embedding_dim * min(MOST_BITS, window):
            raise ValueError(f"num_bits={num_bits} is more than {embedding_dim} dimensions can use; give fewer")
        self._layout = np.array([num_bits, gain_bits, gain_bits + check_bits, window])
        self.finder = IdRows(vocab_size, derive_seed(seed, "rows"))
        generator = seeded(seed)
        num_words = -(-vocab_size * num_bits // 64) + 1  # a word more than the rows need: 64 bits are read at once
        self.register_buffer("codes", torch.empty(num_words, dtype=torch.int64).random_(generator=generator))
        bits = share_bits(np.ones(embedding_dim), self.direction_bits, most=min(MOST_BITS, window))
        self.register_buffer("ends", torch.tensor(np.cumsum(bits), dtype=torch.int16))
        levels = starting_levels(window, np.random.default_rng(seed % 2**63))
        self.levels = nn.Parameter(torch.tensor(levels, dtype=torch.float32))
        self.scale = nn.Parameter(torch.tensor(np.where(bits > 0, initial_std, 0.0), dtype=torch.float32))
        self.mean = nn.Parameter(torch.zeros(embedding_dim))
        self.gains = nn.Parameter(torch.ones(2**gain_bits))
        self.rotation = nn.Parameter(torch.eye(embedding_dim)) if rotated else None
        self.unknown = nn.Parameter(torch.zeros(embedding_dim)) if check_bits else None
        self.added = FrequentRows(num_added, embedding_dim, std=initial_std, generator=generator) if num_added else None

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 or int32 [...] -> [..., embedding_dim], in the type of the levels."""
        ids = checked_ids(ids)
        flat = ids.reshape(-1)
        rows = self.finder(flat)
        vectors = self._decoded(rows)
        if self.rotation is not None:
            vectors = vectors @ self.rotation
        if self.unknown is not None:
            is_known = self._read(rows * self.num_bits + self.gain_bits, self.check_bits) == self._checks(flat)
            vectors = torch.where(is_known.unsqueeze(-1), vectors, self.unknown)
        if self.added is not None:
            own, is_added = self.added(flat)
            vectors = torch.where(is_added.unsqueeze(-1), own, vectors)
        return vectors.view(*ids.shape, self.embedding_dim)

    def _decoded(self, rows: Tensor) -> Tensor:
        """The vectors of rows [n], before they are turned: [n, embedding_dim]."""
        is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        has_kernels = uses_kernels(rows) and not is_traced and not self.codes.is_meta
        if has_kernels and self.levels.dtype == torch.float32 and not torch.is_grad_enabled():
            return self._decoded_in_one_pass(rows)
        number, windows = self._codes_by_kernel(rows) if has_kernels else self._codes_by_torch(rows)
        values = F.embedding(windows, self.levels.unsqueeze(-1)).squeeze(-1)  # [n, embedding_dim]
        has_bits = torch.diff(self.ends.long(), prepend=self.ends.new_zeros(1).long()) > 0
        return F.embedding(number, self.gains.unsqueeze(-1)) * (self.mean + values * (self.scale * has_bits))

    def _decoded_in_one_pass(self, rows: Tensor) -> Tensor:
        from ...kernels import trellis as loops

        out = torch.empty(len(rows), self.embedding_dim)
        loops.decode(
            rows.numpy(),
            self.codes.numpy().view(np.uint64),
            self._layout,
            self.ends.numpy(),
            self.levels.detach().numpy(),
            self.scale.detach().numpy(),
            self.mean.detach().numpy(),
            self.gains.detach().numpy(),
            out.numpy(),
        )
        return out

    def _codes_by_kernel(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The number of the gain [n], and the windows [n, embedding_dim]."""
        from ...kernels import trellis as loops

        number, windows = torch.empty_like(rows), rows.new_empty(len(rows), self.embedding_dim)
        words = self.codes.numpy().view(np.uint64)
        loops.read_codes(rows.numpy(), words, self._layout, self.ends.numpy(), number.numpy(), windows.numpy())
        return number, windows

    def _codes_by_torch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The same in plain torch operations, for other devices and for programs that are exported."""
        begin = rows * self.num_bits
        back = torch.arange(self.window, device=rows.device) - self.window
        bits = (self.ends.long().unsqueeze(-1) + back) % self.direction_bits  # [embedding_dim, window]
        windows = self._bits(begin.view(-1, 1, 1) + self.gain_bits + self.check_bits + bits)
        return self._read(begin, self.gain_bits), windows

    def _read(self, begin: Tensor, count: int) -> Tensor:
        """The number in the `count` bits that begin at `begin` [n]."""
        return self._bits(begin.unsqueeze(-1) + torch.arange(count, device=begin.device))

    def _bits(self, places: Tensor) -> Tensor:
        """Bits at places [..., count] -> the number that they make [...], the first of them lowest."""
        # ONNX cannot shift each number by its own count, so a bit is found by a mask, and weighed by a product.
        powers = torch.tensor([1 << bit for bit in range(63)] + [-(1 << 63)], device=places.device)
        bits = (self.codes[places >> 6] & powers[places & 63]) != 0
        return (bits * powers[: places.shape[-1]]).sum(-1)

    def _checks(self, ids: Tensor) -> Tensor:
        """The check bits of ids: lower bits of another hash than the one that finds the row."""
        return mix_ids(ids ^ _CHECK) & ((1 << self.check_bits) - 1)

    @torch.no_grad()
    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """Code the rows, whatever was coded before. Errors count by the square of the metric (docs/decisions.md)."""
        distinct, place = torch.unique(ids, return_inverse=True)
        if len(distinct) > self.vocab_size:
            raise ValueError(f"{len(distinct)} ids do not fit into vocab_size={self.vocab_size}; make it larger")
        if len(distinct) < len(ids):
            rows, weights = mean_of_sharers(place, rows, weights, len(distinct))
            order = torch.arange(len(distinct))
        else:  # rows stay where they are, because they may be a file that is larger than memory
            distinct, order = ids, place.argsort()
        code, turn, back = self._fitted(rows, order, metric, weights)
        begin = self.finder.build(distinct).numpy() * self.num_bits
        words, checks = np.zeros(len(self.codes), np.uint64), self._checks(distinct).numpy()
        share, mean = (weights.double() / weights.double().sum()).numpy(), np.zeros(self.embedding_dim)
        for start in range(0, len(rows), step := max(1, _BLOCK // self.embedding_dim)):
            part = slice(start, start + step)
            block = rows[part].double().numpy()
            mean += share[part] @ block
            gains, windows = code.encode(block @ turn)
            write_row(words, begin[part], [(self.gain_bits, gains), (self.check_bits, checks[part])], windows, code)
            if self.on_rows is not None:
                self.on_rows(min(start + step, len(rows)), len(rows))
        self.codes.copy_(torch.from_numpy(words.view(np.int64)))
        self.ends.copy_(torch.from_numpy(np.cumsum(code.bits)))
        for name, value in (("levels", code.levels), ("gains", code.gains), ("mean", code.mean), ("scale", code.scale)):
            self.get_parameter(name).copy_(torch.from_numpy(value))
        if self.rotation is not None:
            self.rotation.copy_(torch.from_numpy(back))
        else:
            self.mean.mul_(torch.from_numpy(back.diagonal().copy()))
            self.scale.mul_(torch.from_numpy(back.diagonal().copy()))
        if self.unknown is not None:
            self.unknown.copy_(torch.from_numpy(mean))
        return self, torch.zeros_like(ids, dtype=torch.bool)

    def _fitted(
        self, rows: Tensor, order: Tensor, metric: Tensor, weights: Tensor
    ) -> tuple[TrellisCode, Doubles, Doubles]:
        """The code for rows [n, dim], and the matrices that turn rows into what is coded, and back.

        `order` sorts the rows by id, so that the same rows are drawn in whatever order they come.
        """
        random = np.random.default_rng(self.seed % 2**63)
        share = (weights.double()[order] / weights.double().sum()).numpy()
        count = min(_SAMPLE, int((share > 0).sum()))
        chosen = np.sort(random.choice(len(rows), count, replace=False, p=share))
        sample, steep = rows[order[torch.from_numpy(chosen)]].double().numpy(), metric.double().numpy()
        steep = steep @ steep.T
        if self.rotated:
            turn = steep @ np.linalg.eigh(np.cov((sample @ steep).T))[1][:, ::-1]
            back = np.linalg.pinv(turn)
        else:
            size = np.linalg.norm(steep, axis=1)
            turn, back = np.diag(size), np.diag(np.where(size > 0, 1 / np.where(size > 0, size, 1), 0))
        code = fit_code(
            sample @ turn,
            num_bits=self.direction_bits,
            gain_bits=self.gain_bits,
            length=self.window,
            generator=random,
        )
        return code, turn, back

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
            rows = torch.cat([self.added.table.detach()[is_kept], rows.to(self.added.table)])
        order = ids.argsort()
        self.num_added = len(ids)
        self.added = FrequentRows(len(ids), self.embedding_dim, std=0.0, generator=seeded(self.seed)).to(self.levels)
        self.added.ids = ids[order].clone()
        self.added.table = nn.Parameter(rows[order].detach().to(self.levels).clone())

    def part_of(self, name: str) -> str:
        """The map from ids to rows, codes, codebooks, rows that were added."""
        parts = {"finder": "id map", "codes": "codes", "added": "added rows"}
        return parts.get(name.partition(".")[0], "codebooks")

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        ends = state_dict.get(f"{prefix}ends")
        if isinstance(ends, Tensor) and not ends.is_meta and ends.shape == self.ends.shape:
            bits = torch.diff(ends.long(), prepend=torch.zeros(1, dtype=torch.int64))
            if bits.min() < 0 or bits.max() > self.window or int(ends[-1]) != self.direction_bits:
                raise ValueError(
                    f"the bits of the dimensions end at {ends.tolist()}, which does not fit {self.direction_bits} bits "
                    f"in windows of {self.window}: the file is damaged; take it from a backup"
                )
        super()._load_from_state_dict(state_dict, prefix, *args)

    @classmethod
    def for_rows(cls, budget: Budget, rows: Tensor, *, seed: int = 0, check_bits: int = 0) -> Self:
        """Turned if these rows are worth the bytes of the rotation: if that leaves less variance at equal bytes."""
        sizes: dict[str, Any] = {"embedding_dim": rows.shape[-1], "vocab_size": len(rows), "check_bits": check_bits}
        if rows.is_meta or len(rows) < 2:
            return cls.from_budget(budget, **sizes, seed=seed)
        chosen = np.random.default_rng(seed % 2**63).choice(len(rows), min(_SAMPLE, len(rows)), replace=False)
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
        lost = expected_loss(covariance.diagonal(), plain.direction_bits, most=most)
        powers = np.linalg.eigvalsh(covariance).clip(0)
        is_better = turned.rotated and expected_loss(powers, turned.direction_bits, most=most) < lost
        return cls.from_budget(budget, **sizes, seed=seed, rotated=is_better)

    @classmethod
    def from_budget(
        cls,
        budget: Budget,
        *,
        embedding_dim: int,
        vocab_size: int,
        seed: int = 0,
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
        spent = _GAIN_BITS + check_bits

        def build(direction: int) -> Self:  # type: ignore[type-var]
            return cls(
                embedding_dim,
                vocab_size=vocab_size,
                num_bits=direction + spent,
                gain_bits=_GAIN_BITS,
                check_bits=check_bits,
                window=min(longest, direction),
                rotated=rotated,
                seed=seed,
            )

        return fit_to_budget(build, allowed, largest=embedding_dim * min(MOST_BITS, longest))
