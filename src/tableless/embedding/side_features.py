"""Side features: what is known about an id, such as genres, becomes part of its code. Similar ids get similar codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from .hashing import HashFamily, derive_seed
from .ids import find, to_ids


class SideFeatures(nn.Module):
    """A row of features for each id, kept by id (section 3.4 of the paper): genres, a price, the vector of a title.

    Calling it with ids gives [..., num_features + 1]: the row and a 1, or zeros and a 0 for an id that has no row. Rows
    can be added at any time with `add`, also to a trained model: then the model knows something about a new item.
    The rows are buffers, so they are saved with the state dict.

    `from_matrix` and `from_tags` are the usual ways to make them. Features come as a matrix (dense or multi-hot) or as
    a list of tags for each id.

    Args:
        num_features: How many columns the matrix has.
        tags: The tags that can occur; each has a column. With `num_bits` it is not needed: then any tag can occur.
        num_bits: Reduce the features to this many bits, by locality-sensitive hashing (`LSH`).
        row_bits: How rows are stored: 32 is float32; 8 is whole 32nds, from -3.97 to 3.97.
        seed: The hashing follows from it.

    Raises:
        ValueError: The number of features is not given, or given twice with different values.

    Example:
        ```python
        from tableless import DeepHashEmbedding, SideFeatures, to_ids

        genres = SideFeatures.from_tags(["Alien", "Amélie"], [["horror", "space"], ["comedy"]])
        films = DeepHashEmbedding(32, width=64, side_features=genres)
        genres.add(["Aliens"], [["horror", "space"]])  # a new film whose genres are known
        vectors = films(to_ids(["Alien", "Aliens"]))  # [2, 32]
        ```
    """

    ids: Tensor
    rows: Tensor

    def __init__(
        self,
        num_features: int | None = None,
        *,
        tags: Sequence[str] | None = None,
        num_bits: int | None = None,
        row_bits: int = 32,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if row_bits not in _ROW_TYPES:
            raise ValueError(f"row_bits is {row_bits}; it must be 8 or 32")
        if tags is not None and num_features not in (None, len(tags)):
            raise ValueError(f"num_features is {num_features}, but there are {len(tags)} tags; give one of the two")
        if num_features is None and tags is None and num_bits is None:
            raise ValueError("how many features are there? Give num_features, tags or num_bits")
        self.tags = list(tags) if tags is not None else None
        self.num_features = len(tags) if tags is not None else num_features
        self.num_bits = num_bits
        self.row_bits = row_bits
        self.seed = seed
        self.lsh = LSH(num_bits, seed) if num_bits else None
        self.register_buffer("ids", torch.empty(0, dtype=torch.int64))
        self.register_buffer("rows", torch.empty(0, self.code_dim - 1, dtype=_ROW_TYPES[row_bits]))

    @property
    def code_dim(self) -> int:
        """How many columns the result has: the features, and the 1 or 0 that says whether there is a row."""
        width = self.num_bits or self.num_features
        assert width is not None
        return width + 1

    @property
    def config(self) -> dict[str, Any]:
        """Plain values that build the same side features again, without their rows."""
        return {
            "num_features": self.num_features,
            "tags": self.tags,
            "num_bits": self.num_bits,
            **({} if self.row_bits == 32 else {"row_bits": self.row_bits}),  # earlier versions have no others
            "seed": self.seed,
        }

    @classmethod
    def from_matrix(cls, ids: Any, features: Any, *, num_bits: int | None = None, seed: int = 0) -> Self:
        """Make them from a matrix [n, num_features] with a row for each of `ids`."""
        matrix = torch.as_tensor(features)
        side = cls(matrix.shape[-1], num_bits=num_bits, seed=seed)
        side.add(ids, matrix)
        return side

    @classmethod
    def from_tags(cls, ids: Any, tags: Sequence[Iterable[str]], *, num_bits: int | None = None, seed: int = 0) -> Self:
        """Make them from a list of tags for each of `ids`. The columns are the tags in alphabetical order."""
        tags = [list(own) for own in tags]
        names = None if num_bits else sorted({tag for own in tags for tag in own})
        side = cls(tags=names, num_bits=num_bits, seed=seed)
        side.add(ids, tags)
        return side

    def add(self, ids: Any, features: Any) -> None:
        """Add rows, and replace those of ids that have one. `features` is a matrix, or a list of tags for each id."""
        new_ids = to_ids(ids).reshape(-1).to(self.ids.device)
        rows = self._to_rows(features).to(self.ids.device)
        if self.row_bits == 8:
            rows = (rows * _STEPS).round().clamp(-127, 127).to(torch.int8)
        if len(new_ids) != len(rows):
            raise ValueError(f"there are {len(new_ids)} ids but {len(rows)} rows of features")
        # Later rows replace earlier ones: number all rows in order, and for each id keep the highest number.
        all_ids, all_rows = torch.cat([self.ids, new_ids]), torch.cat([self.rows, rows])
        distinct, inverse = torch.unique(all_ids, return_inverse=True)
        newest = torch.zeros_like(distinct).scatter_reduce(
            0, inverse, torch.arange(len(all_ids), device=inverse.device), "amax"
        )
        self.ids, self.rows = distinct, all_rows[newest]

    def forward(self, ids: Tensor) -> Tensor:
        """The rows of ids: int64 [...] -> float32 [..., num_features + 1]."""
        if not self.ids.shape[0]:
            return torch.zeros(*ids.shape, self.code_dim, device=ids.device)
        position, known = find(ids, self.ids)
        rows = self.rows[position]
        rows = rows if self.row_bits == 32 else rows.to(torch.float32) / _STEPS
        flag = known.unsqueeze(-1).to(rows.dtype)
        return torch.cat([rows * flag, flag], dim=-1)

    def _to_rows(self, features: Any) -> Tensor:
        if isinstance(features, (list, tuple)) and all(_is_tag_list(own) for own in features):
            return self._tags_to_rows([list(own) for own in features])
        matrix = torch.as_tensor(features, dtype=torch.float32)
        if matrix.ndim != 2 or matrix.shape[-1] != self.num_features:
            raise ValueError(f"features has shape {tuple(matrix.shape)}; expected [ids, {self.num_features}]")
        if not matrix.isfinite().all():
            row = int((~matrix.isfinite()).any(-1).nonzero()[0])
            raise ValueError(f"row {row} of the features has a NaN or an infinite value; replace it by a number first")
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
        """Make room for as many rows as were saved: `config` does not say how many there are."""
        if prefix + "ids" in state_dict and prefix + "rows" in state_dict:
            ids, rows = tuple(state_dict[prefix + "ids"].shape), tuple(state_dict[prefix + "rows"].shape)
            if len(ids) != 1 or rows != (*ids, self.code_dim - 1):
                raise ValueError(f"side features of shape {rows} for {ids} ids; expected [ids, {self.code_dim - 1}]")
            self.ids = torch.empty_like(state_dict[prefix + "ids"], device=self.ids.device)
            self.rows = torch.empty_like(state_dict[prefix + "rows"], device=self.rows.device)
        super()._load_from_state_dict(state_dict, prefix, *args)


_ROW_TYPES = {8: torch.int8, 32: torch.float32}
_STEPS = 32  # of rows in 8 bits, from one whole number to the next


def _is_tag_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(tag, str) for tag in value)


class LSH(nn.Module):
    """Locality-sensitive hashing: a vector becomes bits, and similar vectors get similar bits.

    Each bit says on which side of a random hyperplane the vector lies. Two vectors with an angle α between them differ
    in a share α/π of their bits. The hyperplanes are computed from hashes of the column number (or of the tag), so they
    take no memory, however many tags there are.

    Args:
        num_bits: How many bits a vector becomes.
        seed: The hyperplanes follow from it.

    Example:
        ```python
        import torch
        from tableless import LSH

        lsh = LSH(64)
        bits = lsh(torch.randn(2, 300))  # zeros and ones, [2, 64]
        of_tags = lsh.of_tags([["horror", "space"], ["comedy"]])  # [2, 64]
        ```
    """

    def __init__(self, num_bits: int, seed: int = 0) -> None:
        super().__init__()
        self.num_bits = num_bits
        self.seed = seed
        # The sum of twelve uniform numbers is nearly normal. A single one is not, which matters for vectors of few
        # columns with different scales.
        self._hashes = HashFamily(num_bits * _SUMMANDS, 2**20, derive_seed(seed, "lsh"))

    def forward(self, vectors: Tensor) -> Tensor:
        """The bits of vectors: float [..., n] -> zeros and ones, float32 [..., num_bits]."""
        planes = self._planes(torch.arange(vectors.shape[-1], device=vectors.device))
        return (vectors.to(torch.float32) @ planes >= 0).to(torch.float32)

    def of_tags(self, tags: Sequence[Sequence[str]]) -> Tensor:
        """The bits of lists of tags, [len(tags), num_bits]: each list is a multi-hot vector over all possible tags."""
        flat = [tag for own in tags for tag in own]
        row = torch.repeat_interleave(torch.arange(len(tags)), torch.tensor([len(own) for own in tags]))
        planes = self._planes(to_ids(flat).to(self._hashes.coefficients.device))
        sums = torch.zeros(len(tags), self.num_bits, device=planes.device).index_add_(0, row.to(planes.device), planes)
        return (sums >= 0).to(torch.float32)

    def _planes(self, ids: Tensor) -> Tensor:
        """For each of the columns `ids` [n], the coordinates of all hyperplanes in it: [n, num_bits]."""
        uniform = self._hashes(ids).to(torch.float32) / 2**20 - 0.5
        return uniform.unflatten(-1, (self.num_bits, _SUMMANDS)).sum(-1)


_SUMMANDS = 12
