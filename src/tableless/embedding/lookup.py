"""Finding ids in a sorted list of them: which row, if any, belongs to an id."""

from __future__ import annotations

import torch
from torch import Tensor


def find(ids: Tensor, sorted_ids: Tensor) -> tuple[Tensor, Tensor]:
    """For each id [...] its position in `sorted_ids` [rows] and whether it is there; the position is valid anyway."""
    last = sorted_ids.shape[0] - 1
    if last < 0:
        return torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
    search = _binary_search if torch.compiler.is_exporting() else torch.searchsorted
    position = search(sorted_ids, ids).clamp(max=last)
    return position, sorted_ids[position] == ids


def _binary_search(sorted_ids: Tensor, ids: Tensor) -> Tensor:
    """`torch.searchsorted` in operations that ONNX has: halving steps unrolled, as many as the list is long in bits."""
    last = sorted_ids.shape[0] - 1
    position = torch.zeros_like(ids)  # how many listed ids are known to be smaller
    step = 1 << last.bit_length()
    while step:
        candidate = (position + step).clamp(max=last + 1)
        smaller = sorted_ids[candidate - 1] < ids
        position = torch.where(smaller, candidate, position)
        step //= 2
    return position
