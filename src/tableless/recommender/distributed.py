"""Several processes, one model: what `torchrun` started, seen from one of them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Processes:
    """Which of how many processes this is."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_first(self) -> bool:
        """The one that writes and prints."""
        return self.rank == 0


@contextmanager
def join_processes(device: torch.device | None = None) -> Iterator[Processes]:
    """Join the group that `torchrun` describes in the environment; without one, be alone."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size == 1:
        yield Processes()
        return
    dist.init_process_group("nccl" if device is not None and device.type == "cuda" else "gloo")
    try:
        yield Processes(rank=dist.get_rank(), world_size=world_size)
    finally:
        dist.destroy_process_group()


def share_gradients(step: nn.Module, processes: Processes) -> nn.Module:
    """The module with its gradients averaged over all processes; itself, if there is one process.

    Each process keeps its own buffers until `average_buffers`. If all took those of the first process, what the others
    have seen would be lost.
    """
    if processes.world_size == 1:
        return step
    # The option has had this other name in newer versions of torch, and the old one warns.
    known = inspect.signature(DistributedDataParallel).parameters
    option = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    options: dict[str, Any] = {option: False}
    return DistributedDataParallel(step, **options)


def average_buffers(model: nn.Module, processes: Processes) -> None:
    """Make the running statistics of batch norm the same everywhere: each process has seen its own share.

    (SyncBatchNorm would do it step by step, but refuses the CPU.) Integer buffers are counts and hash coefficients,
    which agree anyway.
    """
    if processes.world_size == 1:
        return
    for buffer in model.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= processes.world_size


def agree_to_stop(stop: bool, processes: Processes) -> bool:
    """Stop everywhere if anyone wants to."""
    if processes.world_size == 1:
        return stop
    flag = torch.tensor(float(stop))
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag)
