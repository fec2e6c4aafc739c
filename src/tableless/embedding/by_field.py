"""One table for many fields, each of which has a range of its rows: a scheme for each field.

Click models often keep all their features in one table and add an offset to the ids of each field (torchfm, RecBole).
One scheme may stand for all of it. But fields differ: users may be a million and weekdays seven.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from ..hints import require_known_name
from .budget import Budget, is_share, resolve_budget
from .distillation import distil
from .hashing import derive_seed
from .id_batches import checked_ids
from .scheme import EmbeddingScheme, like_vectors, require_known
from .schemes import SCHEMES, kind_for_rows

BY_FIELD = "by-field"
"""What it is called on disk. It is no name of `SCHEMES`, because it needs the sizes of the fields."""


class EmbeddingByField(EmbeddingScheme):
    """Ids 0 to n₁ - 1 belong to the first field, the next n₂ to the second, and so on; each field has its own scheme.

    Args:
        embedding_dim: Dimensions of a vector.
        fields: For each field its `rows`, the name of its `scheme`, and the `arguments` of that.
    """

    open_vocabulary = False

    def __init__(self, embedding_dim: int, *, fields: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.sizes = [int(field["rows"]) for field in fields]
        self.parts = nn.ModuleList(_built(field) for field in fields)
        self.is_computed = any(part.is_computed for part in self._schemes)
        self.tuning_rate = min(part.tuning_rate for part in self._schemes)
        self.fit_settings: dict[str, Any] = {}  # of `distil`, for fields that are fitted by steps

    @classmethod
    def of_schemes(cls, schemes: Sequence[EmbeddingScheme], sizes: Sequence[int]) -> Self:
        """Schemes that are there already, one for each field."""
        fields = [_described(part, rows) for part, rows in zip(schemes, sizes, strict=True)]
        with torch.device("meta"):
            own = cls(schemes[0].embedding_dim, fields=fields)
        own.parts = nn.ModuleList(schemes)
        return own

    @classmethod
    def for_fields(
        cls, budget: Budget, rows: Tensor, sizes: Sequence[int], *, scheme: str, min_rows: int, seed: int
    ) -> Self:
        """A scheme that suits the rows of each field, unfitted. Fields of fewer than `min_rows` rows keep their rows.

        A budget of memory is for the other fields together, in proportion to their sizes.
        """
        counted = sum(size for size in sizes if size >= min_rows) * rows.shape[1]
        allowed = None if is_share(budget) else resolve_budget(budget, embedding_dim=1, vocab_size=counted)
        parts: list[EmbeddingScheme] = []
        for number, own in enumerate(torch.split(rows, list(sizes))):
            if len(own) < min_rows:
                parts.append(SCHEMES["full"](rows.shape[1], vocab_size=len(own)))
                continue
            share = budget if allowed is None else allowed.share(own.numel(), counted)
            kind = kind_for_rows(scheme, own, share)
            try:
                parts.append(kind.for_rows(share, own, seed=derive_seed(seed, str(number))))
            except ValueError as error:
                raise ValueError(f"field {number} of {len(own)} rows: {error}") from None
        return cls.of_schemes(parts, sizes)

    @classmethod
    def from_budget(cls, budget: Budget, *, embedding_dim: int, vocab_size: int, seed: int = 0) -> Self:
        """Refused: it takes the sizes of the fields."""
        raise TypeError("a scheme for each field needs the sizes of the fields; take EmbeddingByField.for_fields")

    @property
    def _schemes(self) -> list[EmbeddingScheme]:
        return list(self.parts)  # type: ignore[arg-type]

    @property
    def _starts(self) -> list[int]:
        return [0, *accumulate(self.sizes)][:-1]

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 or int32 [...] -> [..., embedding_dim]."""
        shape, ids = ids.shape, checked_ids(ids).reshape(-1)
        require_known(ids, sum(self.sizes))
        vectors = like_vectors(self).new_zeros(len(ids), self.embedding_dim)
        for part, start, size in zip(self._schemes, self._starts, self.sizes, strict=True):
            is_own = (ids >= start) & (ids < start + size)
            if torch.compiler.is_compiling():  # shapes must not depend on the data
                own = part(torch.where(is_own, ids - start, 0))
                vectors = torch.where(is_own.unsqueeze(-1), own, vectors)
            elif is_own.any():
                vectors = vectors.index_put((is_own,), part(ids[is_own] - start).to(vectors.dtype))
        return vectors.view(*shape, self.embedding_dim)

    def fit_directly(
        self, ids: Tensor, rows: Tensor, *, metric: Tensor, weights: Tensor
    ) -> tuple[EmbeddingScheme, Tensor]:
        """Fit each field to its rows, networks by steps."""
        for part, start, size in zip(self._schemes, self._starts, self.sizes, strict=True):
            is_own = (ids >= start) & (ids < start + size)
            if is_own.any():
                own: dict[str, Any] = {"metric": metric, "weights": weights[is_own], **self.fit_settings}
                distil(rows[is_own], part, ids=ids[is_own] - start, **own)
        return self, torch.zeros_like(ids, dtype=torch.bool)

    def pack(self) -> None:
        """Pack the scheme of each field."""
        self._each(lambda part: part.pack())

    def unpack(self) -> None:
        """Make the scheme of each field trainable again."""
        self._each(lambda part: part.unpack())

    def stored(self) -> EmbeddingScheme:
        """The same with each field as it is stored."""
        return self.of_schemes([part.stored() for part in self._schemes], self.sizes)

    def _each(self, do: Callable[[EmbeddingScheme], None]) -> None:
        for part in self._schemes:
            do(part)

    def bytes_by_part(self) -> dict[str, int]:
        """The bytes of all fields, by part."""
        parts: dict[str, int] = {}
        for own in self._schemes:
            for name, size in own.bytes_by_part().items():
                parts[name] = parts.get(name, 0) + size
        return parts

    @property
    def num_parameters(self) -> int:
        """Of all fields."""
        return sum(part.num_parameters for part in self._schemes)

    @property
    def num_known_ids(self) -> int | None:
        """The rows of all fields."""
        return sum(self.sizes)

    @property
    def config(self) -> dict[str, Any]:
        """Plain values that build the same scheme again."""
        fields = [_described(part, rows) for part, rows in zip(self._schemes, self.sizes, strict=True)]
        return {"embedding_dim": self.embedding_dim, "fields": fields}


def _described(scheme: EmbeddingScheme, rows: int) -> dict[str, Any]:
    name = next(name for name, kind in SCHEMES.items() if kind is type(scheme))
    return {"rows": rows, "scheme": name, "arguments": scheme.config}


def _built(field: Mapping[str, Any]) -> EmbeddingScheme:
    require_known_name("scheme", field["scheme"], SCHEMES)
    kind = SCHEMES[field["scheme"]]
    return kind(**{**kind.old_defaults, **field["arguments"]})
