"""Rows sorted into groups, so that one batched product serves many small networks at once."""

from __future__ import annotations

import torch
from torch import Tensor


class Grouping:
    """Where each of n rows goes in a block [num_groups, capacity, …], and how many rows each group holds.

    The capacity is that of the fullest group, so no row is ever dropped; what is left over is padding.
    """

    def __init__(self, groups: Tensor, num_groups: int) -> None:
        num_rows = groups.shape[0]
        self.num_groups = num_groups
        if torch.compiler.is_exporting():
            # An exported program needs shapes that do not depend on the data: every group has room for every row.
            self.counts = torch.full((num_groups,), num_rows, device=groups.device)
            self.capacity = num_rows
            self.position = groups * num_rows + torch.arange(num_rows, device=groups.device)
            return
        self.counts = torch.bincount(groups, minlength=num_groups)  # [num_groups]
        self.capacity = int(self.counts.max()) if num_rows else 0
        order = groups.argsort(stable=True)
        start = self.counts.cumsum(0) - self.counts
        slot = torch.arange(num_rows, device=groups.device) - start[groups[order]]
        self.position = torch.empty_like(order)
        self.position[order] = groups[order] * self.capacity + slot

    def scatter(self, rows: Tensor) -> Tensor:
        """[n, size] -> [num_groups, capacity, size]; padding is zero."""
        block = rows.new_zeros(self.num_groups * self.capacity, rows.shape[-1])
        return block.index_put((self.position,), rows).view(self.num_groups, self.capacity, rows.shape[-1])

    def gather(self, block: Tensor) -> Tensor:
        """[num_groups, capacity, size] -> [n, size], each row back where it came from."""
        return block.flatten(0, 1)[self.position]
