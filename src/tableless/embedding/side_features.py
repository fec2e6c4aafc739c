"""Side features in the encoding: what is known of an id beyond its name, so that like ids get like codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from .hashing import HashFamily, derive_seed
from .ids import find, to_ids


class SideFeatures(nn.Module):
    """Feature rows kept by id (section 3.4): genres, a price, the vector of a title.

    `forward(ids)` gives [..., num_features + 1]: the row and a 1, or zeros and a 0 for an id that has none. Rows can be
    added at any time, also to a trained model, so a new item with known genres is not a stranger. The rows are
    buffers: they are saved with the state dict, and `config` holds only their kind.

    Features come as a matrix (dense or multi-hot), or as a list of tags per id, one column for each of `tags`. With
    `num_bits` they are reduced to that many bits by locality-sensitive hashing, and tags need no list.
    """

    ids: Tensor
    rows: Tensor

    def __init__(
        self,
        num_features: int | None = None,
        *,
        tags: Sequence[str] | None = None,
        num_bits: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if tags is not None and num_features not in (None, len(tags)):
            raise ValueError(f"num_features is {num_features}, but there are {len(tags)} tags; give one of the two")
        if num_features is None and tags is None and num_bits is None:
            raise ValueError("how many features are there? Give num_features, tags or num_bits")
        self.tags = list(tags) if tags is not None else None
        self.num_features = len(tags) if tags is not None else num_features
        self.num_bits = num_bits
        self.seed = seed
        self.lsh = LSH(num_bits, seed) if num_bits else None
        self.register_buffer("ids", torch.empty(0, dtype=torch.int64))
        self.register_buffer("rows", torch.empty(0, self.code_dim - 1))

    @property
    def code_dim(self) -> int:
        """Columns of the result: the features and the flag."""
        width = self.num_bits or self.num_features
        assert width is not None
        return width + 1

    @property
    def config(self) -> dict[str, Any]:
        """Plain values that build the same (still empty) side features again."""
        return {
            "num_features": self.num_features,
            "tags": self.tags,
            "num_bits": self.num_bits,
            "seed": self.seed,
        }

    @classmethod
    def from_matrix(cls, ids: Any, features: Any, *, num_bits: int | None = None, seed: int = 0) -> Self:
        """From dense or multi-hot rows [n, num_features]."""
        matrix = torch.as_tensor(features)
        side = cls(matrix.shape[-1], num_bits=num_bits, seed=seed)
        side.add(ids, matrix)
        return side

    @classmethod
    def from_tags(cls, ids: Any, tags: Sequence[Iterable[str]], *, num_bits: int | None = None, seed: int = 0) -> Self:
        """From a list of tags per id; the columns are the tags that occur, in alphabetical order."""
        tags = [list(own) for own in tags]
        names = None if num_bits else sorted({tag for own in tags for tag in own})
        side = cls(tags=names, num_bits=num_bits, seed=seed)
        side.add(ids, tags)
        return side

    def add(self, ids: Any, features: Any) -> None:
        """Add rows, or replace those of ids that have one. `features` is a matrix or a list of tags per id."""
        new_ids = to_ids(ids).reshape(-1).to(self.ids.device)
        rows = self._to_rows(features).to(self.ids.device)
        if len(new_ids) != len(rows):
            raise ValueError(f"there are {len(new_ids)} ids but {len(rows)} rows of features")
        # Later rows win: number all rows in order, and for each id keep the highest number.
        all_ids, all_rows = torch.cat([self.ids, new_ids]), torch.cat([self.rows, rows])
        distinct, inverse = torch.unique(all_ids, return_inverse=True)
        newest = torch.zeros_like(distinct).scatter_reduce(
            0, inverse, torch.arange(len(all_ids), device=inverse.device), "amax"
        )
        self.ids, self.rows = distinct, all_rows[newest]

    def forward(self, ids: Tensor) -> Tensor:
        """Int64 [...] -> float32 [..., num_features + 1]."""
        if not self.ids.shape[0]:
            return torch.zeros(*ids.shape, self.code_dim, device=ids.device)
        position, known = find(ids, self.ids)
        flag = known.unsqueeze(-1).to(self.rows.dtype)
        return torch.cat([self.rows[position] * flag, flag], dim=-1)

    def _to_rows(self, features: Any) -> Tensor:
        if isinstance(features, (list, tuple)) and all(_is_tag_list(own) for own in features):
            return self._tags_to_rows([list(own) for own in features])
        matrix = torch.as_tensor(features, dtype=torch.float32)
        if matrix.ndim != 2 or matrix.shape[-1] != self.num_features:
            raise ValueError(f"features has shape {tuple(matrix.shape)}; expected [ids, {self.num_features}]")
        if not matrix.isfinite().all():
            row = int((~matrix.isfinite()).any(-1).nonzero()[0])
            raise ValueError(f"row {row} of the features has a value that is not a finite number; fill it first")
        return self.lsh(matrix) if self.lsh else matrix

    def _tags_to_rows(self, tags: list[list[str]]) -> Tensor:
        if self.lsh:
            return self.lsh.of_tags(tags)
        if self.tags is None:
            raise ValueError("these side features were made without tags; give a matrix, or make them with tags=…")
        column = {tag: index for index, tag in enumerate(self.tags)}
        rows = torch.zeros(len(tags), len(self.tags))
        for row, own in enumerate(tags):
            for tag in own:
                if tag not in column:
                    raise ValueError(
                        f"tag {tag!r} of row {row} is not one of the {len(column)} tags known here; "
                        "num_bits=… takes any tag"
                    )
                rows[row, column[tag]] = 1
        return rows

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        """Take as many rows as were saved: their number is data, not configuration."""
        if prefix + "ids" in state_dict and prefix + "rows" in state_dict:
            ids, rows = tuple(state_dict[prefix + "ids"].shape), tuple(state_dict[prefix + "rows"].shape)
            if len(ids) != 1 or rows != (*ids, self.code_dim - 1):
                raise ValueError(f"side features of shape {rows} for {ids} ids; expected [ids, {self.code_dim - 1}]")
            self.ids = torch.empty_like(state_dict[prefix + "ids"], device=self.ids.device)
            self.rows = torch.empty_like(state_dict[prefix + "rows"], device=self.rows.device)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _is_tag_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(tag, str) for tag in value)


class LSH(nn.Module):
    """Locality-sensitive hashing: the side of `num_bits` random hyperplanes on which a vector lies, as zeros and ones.

    Two vectors differ in a share angle/π of their bits. The hyperplanes are hashes of the column number (or of the tag
    itself), so nothing is stored, and vectors over millions of tags never exist.
    """

    def __init__(self, num_bits: int, seed: int = 0) -> None:
        super().__init__()
        self.num_bits = num_bits
        self.seed = seed
        # Sums of twelve uniform numbers are close enough to normal; one hash is not, for few and unlike columns.
        self._hashes = HashFamily(num_bits * _SUMMANDS, 2**20, derive_seed(seed, "lsh"))

    def forward(self, vectors: Tensor) -> Tensor:
        """Float [..., n] -> 0/1 as float32 [..., num_bits]."""
        planes = self._planes(torch.arange(vectors.shape[-1], device=vectors.device))
        return (vectors.to(torch.float32) @ planes >= 0).to(torch.float32)

    def of_tags(self, tags: Sequence[Sequence[str]]) -> Tensor:
        """Lists of tags, each taken as its multi-hot vector over all possible tags -> [len(tags), num_bits]."""
        flat = [tag for own in tags for tag in own]
        row = torch.repeat_interleave(torch.arange(len(tags)), torch.tensor([len(own) for own in tags]))
        planes = self._planes(to_ids(flat).to(self._hashes.coefficients.device))
        sums = torch.zeros(len(tags), self.num_bits, device=planes.device).index_add_(0, row.to(planes.device), planes)
        return (sums >= 0).to(torch.float32)

    def _planes(self, ids: Tensor) -> Tensor:
        """The coordinate of every hyperplane along each of the columns `ids` [n] -> [n, num_bits]."""
        uniform = self._hashes(ids).to(torch.float32) / 2**20 - 0.5
        return uniform.unflatten(-1, (self.num_bits, _SUMMANDS)).sum(-1)


_SUMMANDS = 12
