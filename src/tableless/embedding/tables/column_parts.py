"""Vectors whose columns are split into parts, with a number for each part: it says which row of a table has the part.

Product quantization calls these numbers codes, clustered compositional embedding calls them pointers. Both find them by
k-means, which faiss does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...hints import install_hint
from ...kernels import Floats, Int64s

_LEAST_WEIGHT = 1e-6  # of the heaviest direction: directions that do not count at all can't be mapped back
_POINTS_PER_CENTRE = 256  # as in faiss: more points do not move centres much
_ROUNDS, _FEWEST_ROUNDS = 25, 5
_MOST_DISTANCES = 2e10  # of all rounds together; more would take minutes, so that there are fewer rounds then


def part_sizes(embedding_dim: int, num_parts: int) -> list[int]:
    """How many columns each part has. They differ by one at most, and the larger parts come first."""
    if not 1 <= num_parts <= embedding_dim:
        raise ValueError(f"num_parts is {num_parts}; it must lie in 1 … {embedding_dim}, the number of columns")
    size, rest = divmod(embedding_dim, num_parts)
    return [size + (part < rest) for part in range(num_parts)]


def parts_of_columns(embedding_dim: int, num_parts: int) -> Tensor:
    """The part that each column belongs to: int64 [embedding_dim]."""
    sizes = torch.tensor(part_sizes(embedding_dim, num_parts))
    return torch.arange(num_parts).repeat_interleave(sizes, output_size=embedding_dim)


def look_up_parts(table: Tensor, rows: Tensor, parts: Tensor) -> Tensor:
    """Table [num_rows, dim], rows int64 [..., num_parts], the part of each column [dim] -> vectors [..., dim]."""
    places = rows[..., parts]  # [..., dim]
    return table.gather(0, places.reshape(-1, table.shape[1])).view(places.shape)


def metric_roots(metric: Tensor, parts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Coordinates in which all errors count the same: a matrix [dim, dim] that leads there, and one that leads back.

    An error e counts as ‖e @ metric‖². With the `parts` of columns given, columns of different parts do not mix: what
    the metric says of two parts together is left out. The coordinates have about the size of the rows themselves.
    """
    square = metric.double() @ metric.double().mT
    if parts is not None:
        square = square * (parts.unsqueeze(-1) == parts)
    values, directions = torch.linalg.eigh(square)
    values = values.clamp(min=_LEAST_WEIGHT * float(values[-1])) if values[-1] > 0 else torch.ones_like(values)
    roots = (values / values.mean()).sqrt()
    return (directions * roots) @ directions.mT, (directions / roots) @ directions.mT


def find_centres(
    points: Floats, count: int, *, weights: Floats | None, seed: int, start: Floats | None = None, rounds: int = _ROUNDS
) -> Floats:
    """K-means by faiss: points [n, dim] and how much each counts [n] -> centres [count, dim].

    The search begins at the centres `start`, or at points that are drawn from the seed.
    """
    if count >= len(points):  # each point is its own centre, and the others are not needed
        return np.concatenate([points, np.zeros((count - len(points), points.shape[1]), np.float32)])
    affordable = int(_MOST_DISTANCES / (min(len(points), count * _POINTS_PER_CENTRE) * count))
    found = faiss_module().Kmeans(
        points.shape[1],
        count,
        niter=min(rounds, max(_FEWEST_ROUNDS, affordable)),
        seed=seed % 2**31,
        min_points_per_centroid=1,
        max_points_per_centroid=_POINTS_PER_CENTRE,
    )
    found.train(np.ascontiguousarray(points), weights=weights, init_centroids=start)
    centres: Floats = found.centroids
    return centres


def nearest_centres(points: Floats, centres: Floats) -> Int64s:
    """The number of the centre that is nearest to each point [n]."""
    index = faiss_module().IndexFlatL2(points.shape[1])
    index.add(np.ascontiguousarray(centres))
    numbers: Int64s = index.search(np.ascontiguousarray(points), 1)[1][:, 0]
    return numbers


def as_points(rows: Tensor) -> Floats:
    """Rows as faiss takes them."""
    points: NDArray[np.float32] = np.ascontiguousarray(rows.detach().cpu().numpy(), dtype=np.float32)
    return points


def faiss_module() -> Any:
    """The package faiss, or how to install it."""
    try:
        import faiss
    except ImportError as missing:
        raise ImportError(f"k-means of a table's rows needs faiss: {install_hint('serve')}") from missing
    return faiss
