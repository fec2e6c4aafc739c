"""What a trained model answers with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Recommendation:
    """An item for a user; the score is a logit."""

    item: int | str
    score: float
    title: str | None


@dataclass(frozen=True)
class Neighbor:
    """An id whose vector points in a similar direction; `similarity` is the cosine between the two."""

    id: int | str
    similarity: float
    title: str | None


@dataclass(frozen=True)
class ListedItem:
    """An item that can be recommended; `actions` says how often it was chosen in training, if that was counted."""

    item: int | str
    title: str | None
    actions: int | None


@dataclass(frozen=True)
class MapPoint:
    """An item's place on the map."""

    item: int | str
    x: float
    y: float
    title: str | None
