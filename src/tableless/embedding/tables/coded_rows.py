"""The bits of many rows, and how they become vectors: what `CodedEmbedding` has beside a map from ids to rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...kernels import Doubles, uses_kernels
from ...kernels.resources import in_parallel
from ..hashing import mix_ids
from ..id_rows import IdRows
from ..scheme import seeded
from ..trellis import (
    MOST_BITS,
    TrellisCode,
    expected_loss,
    fit_code,
    share_bits,
    starting_levels,
    write_row,
)

LONGEST_WINDOW = 8
"""Bits. One more doubles the time of coding, and saves one bit in fifty."""
SAMPLE = 6000
"""Rows that a code is fitted to."""
_BLOCK = 1 << 20  # numbers that are coded at once: a few dozen MB with all that is made of them
_CHECK = 0x6A09E667F3BCC908  # makes the check bits independent of the hash that finds the row


class CodedRows(nn.Module):
    """`num_rows` rows of a trellis code (trellis.py), with the codebooks that make vectors of them.

    The arguments are those of `CodedEmbedding`. Codes are buffers; levels, scale, mean, gains and rotation can be
    trained while the codes stay as they are.
    """

    codes: Tensor
    ends: Tensor

    def __init__(
        self,
        num_rows: int,
        embedding_dim: int,
        *,
        num_bits: int,
        gain_bits: int,
        check_bits: int,
        window: int,
        rotated: bool,
        initial_std: float,
        seed: int,
    ) -> None:
        super().__init__()
        self.embedding_dim, self.window, self.seed = embedding_dim, window, seed
        self.num_bits, self.gain_bits, self.check_bits = num_bits, gain_bits, check_bits
        self.direction_bits = num_bits - gain_bits - check_bits
        if not 1 <= window <= min(self.direction_bits, LONGEST_WINDOW) or not (
            0 <= gain_bits <= 16 and 0 <= check_bits <= 32
        ):
            raise ValueError(
                f"num_bits={num_bits} with gain_bits={gain_bits} and check_bits={check_bits} leaves "
                f"{self.direction_bits} bits for the direction; it needs at least the {window} of a window, and a "
                f"window has 1 to {LONGEST_WINDOW}; a gain has at most 16 bits, a check 32"
            )
        if self.direction_bits > embedding_dim * min(MOST_BITS, window):
            raise ValueError(f"num_bits={num_bits} is more than {embedding_dim} dimensions can use; give fewer")
        self._layout = np.array([num_bits, gain_bits, gain_bits + check_bits, window, _CHECK])
        num_words = -(-num_rows * num_bits // 64) + 1  # a word more than the rows need: 64 bits are read at once
        self.register_buffer("codes", torch.empty(num_words, dtype=torch.int64).random_(generator=seeded(seed)))
        bits = share_bits(np.ones(embedding_dim), self.direction_bits, most=min(MOST_BITS, window))
        self.register_buffer("ends", torch.tensor(np.cumsum(bits), dtype=torch.int16))
        levels = starting_levels(window, np.random.default_rng(seed % 2**63))
        self.levels = nn.Parameter(torch.tensor(levels, dtype=torch.float32))
        self.scale = nn.Parameter(torch.tensor(np.where(bits > 0, initial_std, 0.0), dtype=torch.float32))
        self.mean = nn.Parameter(torch.zeros(embedding_dim))
        self.gains = nn.Parameter(torch.ones(2**gain_bits))
        self.rotation = nn.Parameter(torch.eye(embedding_dim)) if rotated else None

    def forward(self, rows: Tensor) -> Tensor:
        """Rows [n] -> vectors [n, embedding_dim], by operations that have gradients and can be exported."""
        number, windows = self._codes_by_kernel(rows) if self.has_kernels(rows) else self._codes_by_torch(rows)
        values = F.embedding(windows, self.levels.unsqueeze(-1)).squeeze(-1)  # [n, embedding_dim]
        has_bits = torch.diff(self.ends.long(), prepend=self.ends.new_zeros(1).long()) > 0
        gains = F.embedding(number, self.gains.unsqueeze(-1))
        return self.turned(gains * (self.mean + values * (self.scale * has_bits)))

    def checks(self, ids: Tensor) -> Tensor:
        """The check bits of ids: lower bits of another hash than the one that finds the row."""
        if not self.check_bits:
            return torch.from_numpy(np.zeros(ids.shape, np.int64))  # takes no memory until somebody writes to it
        return mix_ids(ids ^ _CHECK) & ((1 << self.check_bits) - 1)

    def is_known(self, ids: Tensor, rows: Tensor) -> Tensor:
        """Which ids [n] have their check bits in the rows [n] that were found for them?"""
        return self.read(rows * self.num_bits + self.gain_bits, self.check_bits) == self.checks(ids)

    def expected_loss(self, variance: Doubles) -> float:
        """The variance that the codes leave of dimensions with these variances."""
        return expected_loss(variance, self.direction_bits, most=min(MOST_BITS, self.window))

    def turned(self, vectors: Tensor) -> Tensor:
        """Decoded vectors by the rotation, if there is one."""
        return vectors if self.rotation is None else vectors @ self.rotation

    def has_kernels(self, ids: Tensor) -> bool:
        """Can compiled loops work here?"""
        is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        return uses_kernels(ids) and not is_traced and not self.codes.is_meta

    def compiled(self, finder: IdRows) -> Callable[[Tensor], tuple[Tensor, Tensor | None]]:
        """The compiled loop from ids [n] to vectors [n, embedding_dim], and which ids pass the check, if there is one.

        It keeps the arrays as they are now: to ask torch for them takes as long as to decode dozens of rows.
        """
        from ...kernels import trellis as loops

        own = tuple(part.detach().numpy() for part in (self.levels, self.scale, self.mean, self.gains))
        codes = self.codes.numpy().view(np.uint64), self._layout, self.ends.numpy(), *own
        cells = int(finder.key), finder.cells.numpy(), finder.ranks.numpy(), finder.sizes

        def vectors(ids: Tensor) -> tuple[Tensor, Tensor | None]:
            out = torch.empty(len(ids), self.embedding_dim)
            is_known = torch.empty(len(ids) if self.check_bits else 0, dtype=torch.bool)
            loops.find_and_decode(ids.contiguous().numpy(), *cells, *codes, is_known.numpy(), out.numpy())  # type: ignore[call-arg]
            return self.turned(out), is_known if self.check_bits else None

        return vectors

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
        return self.read(begin, self.gain_bits), windows

    def read(self, begin: Tensor, count: int) -> Tensor:
        """The number in the `count` bits that begin at `begin` [n]; 0 of no bits, which ONNX could not add up."""
        if not count:
            return torch.zeros_like(begin)
        return self._bits(begin.unsqueeze(-1) + torch.arange(count, device=begin.device))

    def _bits(self, places: Tensor) -> Tensor:
        """Bits at places [..., count] -> the number that they make [...], the first of them lowest."""
        # ONNX cannot shift each number by its own count, so a bit is found by a mask, and weighed by a product.
        powers = torch.tensor([1 << bit for bit in range(63)] + [-(1 << 63)], device=places.device)
        bits = (self.codes[places >> 6] & powers[places & 63]) != 0
        return (bits * powers[: places.shape[-1]]).sum(-1)

    def write(
        self,
        rows: Tensor,
        ids: Tensor,
        finder: IdRows,
        *,
        order: Tensor,
        metric: Tensor,
        weights: Tensor,
        on_rows: Callable[[int, int], None] | None = None,
    ) -> Doubles:
        """Code vectors [n, dim] of ids [n] and write them where the finder says. All that was there is lost.

        `order` sorts the vectors by id, so that the same ones are drawn for the codebooks in whatever order they come.
        Returns the weighted mean of the vectors.
        """
        code, turn, back = self._fitted(rows, order, metric, weights)
        words = self.codes.zero_().cpu().numpy().view(np.uint64)
        total, done, alone, size = weights.double().sum(), 0, threading.Lock(), max(1, _BLOCK // self.embedding_dim)
        sums = np.zeros((-(-len(rows) // size), self.embedding_dim))

        def write_blocks(start: int, stop: int) -> None:
            nonlocal done
            for number in range(start, stop):  # the same blocks for any number of threads: so the codes are the same
                part = slice(number * size, (number + 1) * size)
                block = rows[part].double()
                # Torch stays on this core here; numpy would wake threads of its own.
                gains, windows = code.encode((block @ torch.from_numpy(turn)).numpy())
                fields = [(self.gain_bits, gains), (self.check_bits, self.checks(ids[part]).numpy())]
                places = finder(ids[part]).numpy() * self.num_bits
                sums[number] = weights[part].double() / total @ block
                with alone:  # two rows may share a word
                    write_row(words, places, fields, windows, code)
                    done += len(block)
                    if on_rows is not None:
                        on_rows(done, len(rows))

        in_parallel(write_blocks, len(sums), fewest=1)
        self.codes.copy_(torch.from_numpy(words.view(np.int64)))
        self.ends.copy_(torch.from_numpy(np.cumsum(code.bits)))
        for name in ("levels", "gains", "mean", "scale"):
            self.get_parameter(name).copy_(torch.from_numpy(getattr(code, name)))
        if self.rotation is not None:
            self.rotation.copy_(torch.from_numpy(back))
        else:
            self.mean.mul_(torch.from_numpy(back.diagonal().copy()))
            self.scale.mul_(torch.from_numpy(back.diagonal().copy()))
        return np.asarray(sums.sum(0))

    def _fitted(
        self, rows: Tensor, order: Tensor, metric: Tensor, weights: Tensor
    ) -> tuple[TrellisCode, Doubles, Doubles]:
        """The code for rows [n, dim], and the matrices that turn rows into what is coded, and back."""
        random = np.random.default_rng(self.seed % 2**63)
        share = (weights[order] / weights.double().sum()).numpy()
        count = min(SAMPLE, int((share > 0).sum()))
        chosen = np.sort(random.choice(len(rows), count, replace=False, p=share))
        sample, steep = rows[order[torch.from_numpy(chosen)]].double().numpy(), metric.double().numpy()
        steep = steep @ steep.T
        if self.rotation is not None:
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


def turning_pays(build: Callable[[bool], CodedRows], rows: Tensor, seed: int) -> bool | None:
    """Are vectors like these worth a rotation? `build` gives coded rows with and without one, of equal bytes.

    None if the rows say nothing of it.
    """
    if rows.is_meta or len(rows) < 2:
        return None
    chosen = np.random.default_rng(seed % 2**63).choice(len(rows), min(SAMPLE, len(rows)), replace=False)
    sample = F.normalize(rows[torch.from_numpy(np.sort(chosen))].detach().cpu().double(), dim=-1).numpy()
    if not np.isfinite(sample).all():
        return None
    covariance = np.atleast_2d(np.cov(sample.T, ddof=0))
    with torch.device("meta"):
        plain = build(False)
        try:
            turned = build(True)
        except ValueError:  # the matrix alone is too large
            return False
    return turned.expected_loss(np.linalg.eigvalsh(covariance).clip(0)) < plain.expected_loss(covariance.diagonal())
