"""The vectors of one side, users or items: from raw ids to vectors, and a sentence where an id has no row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from torch import Tensor

from ..embedding.ids import to_ids
from ..recommender.run_directory import Side, StoredRun
from ..recommender.scoring import MissingRowError
from .fast_embedding import FastEmbedding
from .settings import AnswerSettings


class UnknownIdError(ValueError):
    """An id without a row in a closed scheme. `without_id` is the message for those who must not repeat the id."""

    def __init__(self, side: Side, raw: int | str, *, without_id: str) -> None:
        super().__init__(
            f"{side} {raw} was not in the training data, and this scheme has no row for it. A scheme that is open to "
            "new ids, such as dhe, would answer"
        )
        self.without_id = without_id


class SideVectors:
    """Raw ids of one side -> ids -> vectors. `sample_ids` are ids that show how large numbers become, for int8."""

    def __init__(self, run: StoredRun, side: Side, settings: AnswerSettings, *, sample_ids: Tensor | None) -> None:
        scheme = run.scheme(side)
        self._side = side
        self._kind = run.config["kinds"][side]
        self._rows_by_id = run.rows_by_id(side)
        hot_ids = settings.hot_ids if scheme.is_computed else 0  # to look up a row of a table is as quick
        self.fast = FastEmbedding(scheme, precision=settings.precision, hot_ids=hot_ids, sample_ids=sample_ids)

    def ids(self, raw: Any) -> Tensor:
        """Raw ids (a list, array, Series or tensor) as int64."""
        return _ids_of_kind(raw, kind=self._kind, side=self._side)

    def __call__(self, ids: Tensor, raw: Any = None) -> Tensor:
        """Int64 [n] -> float32 [n, dim]. `raw` is what the ids were made from, for the message if one has no row."""
        try:
            return self.fast(ids if self._rows_by_id is None else self._rows_by_id(ids))
        except MissingRowError as missing:
            if raw is None or isinstance(raw, Iterator):  # what an iterator gave is gone
                raise
            raise UnknownIdError(self._side, _raw_id_at(raw, missing.position), without_id=str(missing)) from None


def _raw_id_at(raw: Any, position: int) -> int | str:
    """One of some raw ids, for a message."""
    if isinstance(raw, (int, str)):
        return raw
    value = (raw.reshape(-1) if isinstance(raw, (Tensor, np.ndarray)) else raw)[position]
    return value if isinstance(value, str) else int(value)


def _ids_of_kind(raw: Any, *, kind: str, side: str) -> Tensor:
    """Raw ids as int64. A string where the data has integers is refused; an integer is taken for an id everywhere."""
    if isinstance(raw, Iterator):
        raw = list(raw)
    if kind == "integer" and (text := _first_text(raw)) is not None:
        raise ValueError(f"{side} ids are integers in this run's data, and {text!r} is a string")
    return to_ids(raw)


def _first_text(raw: Any) -> str | bytes | None:
    """The first of some raw ids, if they are strings."""
    if isinstance(raw, (str, bytes)):
        return raw
    if isinstance(raw, (Tensor, np.generic)):
        return None
    values = raw.ravel() if isinstance(raw, np.ndarray) else raw
    first = next(iter(values), None) if isinstance(values, Iterable) else values
    return first if isinstance(first, (str, bytes)) else None
