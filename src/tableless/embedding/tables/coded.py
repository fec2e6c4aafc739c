"""Coded rows: a few bits for each id, found without a list of the ids."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ..budget import Budget, fit_to_budget, resolve_budget
from ..deep_hash import DeepHashEmbedding
from ..hashing import derive_seed
from ..id_batches import checked_ids
from ..id_rows import IdRows
from ..scheme import INITIAL_STD, EmbeddingScheme, Precision, Served, seeded
from ..trellis import MOST_BITS
from .coded_rows import LONGEST_WINDOW, CodedRows, turning_pays
from .frequent_rows import FrequentRows
from .shared_rows import one_row_each
from .unknown_ids import UnknownIds

_LEVELS_SHARE, _ROTATION_SHARE = 64, 32  # levels (and gains) and rotation take at most this part of a budget
_MORE_GAIN_BITS_FROM, _MOST_GAIN_BITS = 48, 8  # a row of so many bits has more than 4 for its gain (docs/tried.md)


class CodedEmbedding(EmbeddingScheme):
    """Rows of `num_bits` bits, for the vectors of a trained table (`tableless.distil`): the smallest at its accuracy.

    `IdRows` finds the row of an id without storing ids, and a trellis code (trellis.py) makes a vector of its bits. An
    id that was not put in gets the vector of another one. With check bits most such ids are noticed, all but one in
    2^`check_bits`. They get the mean vector, or the one that a network computes for them. `add` takes more ids later.

    Args:
        embedding_dim: Dimensions of a vector.
        vocab_size: How many ids there is room for.
        num_bits: Bits of a row: gain, check bits and direction together.
        gain_bits: Bits for the length of a vector.
        check_bits: Bits that tell ids that were put in from others.
        window: How many bits a dimension reads.
        rotated: Keep a matrix that turns decoded vectors. Without it the dimensions are coded as they are, and those of
            the table should be independent of each other, as those of `GMF.targets` are.
        network: Arguments of a `DeepHashEmbedding` for ids that were not put in; `tableless.distil` fits it to the same
            rows. It needs check bits.
        packed: Are the weights of the network in the form that is stored? Without a network there is one form only.
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
        network: Mapping[str, Any] | None = None,
        packed: bool = False,
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
        self.rotated, self.num_added = rotated, num_added
        self.initial_std, self.seed = initial_std, seed
        self.finder = IdRows(vocab_size, derive_seed(seed, "rows"))
        shared: dict[str, Any] = {"initial_std": initial_std, "seed": seed}
        bits = {"num_bits": num_bits, "gain_bits": gain_bits, "check_bits": check_bits, "window": window}
        self.rows = CodedRows(vocab_size, embedding_dim, **bits, rotated=rotated, **shared)
        if network is not None and not check_bits:
            raise ValueError("the network is for ids that fail the check, and check_bits is 0; give check_bits=8")
        self.packed = packed or network is None
        self.unknown = UnknownIds(embedding_dim, network, packed=packed, **shared) if check_bits else None
        self.network = None if self.unknown is None else self.unknown.network
        self.added = self._room_for(num_added) if num_added else None

    @property
    def tail(self) -> DeepHashEmbedding | None:
        """The network for ids that were not put in, if there is one."""
        return None if self.unknown is None else self.unknown.tail

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 or int32 [...] -> [..., embedding_dim], in the type of the levels."""
        ids = checked_ids(ids)
        flat = ids.reshape(-1)
        if self.rows.has_kernels(flat) and self.rows.levels.dtype == torch.float32 and not torch.is_grad_enabled():
            vectors, is_known = self.rows.compiled(self.finder)(flat)
        else:
            rows = self.finder(flat)
            vectors, is_known = self.rows(rows), self.rows.is_known(flat, rows) if self.check_bits else None
        return self._completed(flat, vectors, is_known, self.unknown).view(*ids.shape, self.embedding_dim)

    def _completed(
        self, ids: Tensor, vectors: Tensor, is_known: Tensor | None, fill_in: Callable[..., Tensor] | None
    ) -> Tensor:
        """The vectors [n, embedding_dim], with others for ids that fail the check and for those that were added."""
        if fill_in is not None:
            vectors = fill_in(ids, vectors, is_known)
        if self.added is None:
            return vectors
        own, is_added = self.added(ids)
        return torch.where(is_added.unsqueeze(-1), own, vectors)

    def served(self, precision: Precision, sample_ids: Tensor) -> Served:
        """The compiled loop, and a network as it is served."""
        if self.rows.levels.dtype != torch.float32:
            return Served(self)
        loop, finish = self.rows.compiled(self.finder), self._completed
        if self.unknown is None:
            return Served(lambda ids: finish(ids, *loop(ids), None))
        fill_in, computed = self.unknown.served(precision, sample_ids)
        return Served(lambda ids: finish(ids, *loop(ids), fill_in), computed)

    def exported(self) -> nn.Module:
        """With a network as it is exported."""
        if self.unknown is None:
            return self
        copied = copy.copy(self)
        copied._modules = {**self._modules, "unknown": self.unknown.exported()}
        return copied

    def pack(self) -> None:
        """Round the weights of a network for good."""
        if self.tail is not None:
            self.tail.pack()
            self.packed = True

    def unpack(self) -> None:
        """Make the weights of a network trainable again."""
        if self.tail is not None:
            self.tail.unpack()
            self.packed = False

    def expect_training_from_nothing(self) -> None:
        """Do not warn for a network."""
        if self.tail is not None:
            self.tail.expect_training_from_nothing()

    @torch.no_grad()
    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """Code the rows, whatever was coded before. Errors count by the square of the metric, as in scores.

        A network then learns them all, as if it had to know them alone: so it may say something of other ids.
        """
        distinct, order, rows, weights = one_row_each(ids, rows, weights)
        if len(distinct) > self.vocab_size:
            raise ValueError(f"{len(distinct)} ids do not fit into vocab_size={self.vocab_size}; make it larger")
        self.finder.build(distinct)
        mean = self.rows.write(
            rows, distinct, self.finder, order=order, metric=metric, weights=weights, on_rows=self.on_rows
        )
        if self.unknown is not None and self.unknown.mean is not None:
            self.unknown.mean.copy_(torch.from_numpy(mean))
        self.expect_training_from_nothing()
        return self.learned_part(ids)

    def learned_part(self, ids: Tensor) -> tuple[EmbeddingScheme, Tensor]:
        """A network, if there is one, for all ids."""
        return self.tail or self, torch.full_like(ids, self.tail is not None, dtype=torch.bool)

    def add(self, ids: Tensor, rows: Tensor) -> None:
        """Take more ids, or other vectors for ids that are there, as float32 rows beside the codes.

        Such a row takes far more bytes than a code. After many additions, code all rows anew with `tableless.distil`.

        Args:
            ids: Distinct ids, int64 [n].
            rows: Their vectors, [n, embedding_dim].

        Raises:
            ValueError: An id is there twice, or there are not as many rows.
        """
        added = self.added or self._room_for(0).to(self.rows.levels)
        self.added = added.with_more(ids, rows)
        self.num_added = self.added.num_ids

    def _room_for(self, num_ids: int) -> FrequentRows:
        return FrequentRows(num_ids, self.embedding_dim, std=self.initial_std, generator=seeded(self.seed))

    def part_of(self, name: str) -> str:
        """The map from ids to rows, codes, codebooks, rows that were added, and the network for other ids."""
        if name.startswith("unknown.tail."):
            own = super().part_of(name)
            return "network" if own == "weights" else own
        parts = {"finder": "id map", "added": "added rows"}
        return "codes" if name == "rows.codes" else parts.get(name.partition(".")[0], "codebooks")

    @classmethod
    def for_rows(cls, budget: Budget, rows: Tensor, *, seed: int = 0, check_bits: int = 0) -> Self:
        """Turned if these rows are worth the bytes of the rotation: if that leaves less variance at equal bytes."""
        sizes: dict[str, Any] = {"embedding_dim": rows.shape[-1], "vocab_size": len(rows), "check_bits": check_bits}
        is_better = turning_pays(lambda rotated: cls.from_budget(budget, **sizes, rotated=rotated).rows, rows, seed)
        return cls.from_budget(budget, **sizes, seed=seed, rotated=is_better)

    @classmethod
    def from_budget(
        cls,
        budget: Budget,
        *,
        embedding_dim: int,
        vocab_size: int,
        seed: int = 0,
        gain_bits: int | None = None,
        check_bits: int = 0,
        rotated: bool | None = None,
        network_share: float = 0.0,
        **options: Any,
    ) -> Self:
        """As many bits for each id as the budget pays for. A budget in parameters counts four bytes for each.

        Levels and rotation are as large as suits the budget: a small vocabulary has short windows, and is not turned
        unless `rotated` says so. If the rows are there, `for_rows` decides better. A row of many bits has more
        `gain_bits`, unless they are given: where directions are nearly exact, errors of the length count most. A
        network for ids that fail the check gets `network_share` of the budget, and its `from_budget` the `options`.
        """
        sizes: dict[str, Any] = {"embedding_dim": embedding_dim, "vocab_size": vocab_size}
        allowed = resolve_budget(budget, **sizes).in_bytes
        rotated = 4 * embedding_dim**2 * _ROTATION_SHARE <= allowed.amount if rotated is None else rotated
        longest = max(4, min(LONGEST_WINDOW, (allowed.amount // (4 * _LEVELS_SHARE)).bit_length() - 1))
        if gain_bits is None:
            bits = 8 * allowed.amount // vocab_size
            more = max(4, min(bits.bit_length() - 1, longest - 1, _MOST_GAIN_BITS))
            gain_bits = more if bits >= _MORE_GAIN_BITS_FROM else 4
        network = UnknownIds.arguments_for(network_share, allowed, options, **sizes)

        def build(direction: int) -> Self:  # type: ignore[type-var]
            return cls(
                embedding_dim,
                vocab_size=vocab_size,
                num_bits=direction + gain_bits + check_bits,
                gain_bits=gain_bits,
                check_bits=check_bits,
                window=min(longest, direction),
                rotated=rotated,
                network=network,
                seed=seed,
            )

        return fit_to_budget(build, allowed, largest=embedding_dim * min(MOST_BITS, longest))
