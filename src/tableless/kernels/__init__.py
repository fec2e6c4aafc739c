"""Every compiled loop, and the machine's threads and memory: a leaf that imports nothing else of the library.

A loop is compiled by numba when it is first called, and kept on disk for the next process. Importing numba takes a
third of a second, so a module with loops is imported where a loop is called, and not at the top of a file.
"""

from __future__ import annotations

import torch
from torch import Tensor


def uses_kernels(tensor: Tensor) -> bool:
    """Is this tensor for the compiled loops? They serve the CPU. An exported program must stand alone, without them."""
    return tensor.device.type == "cpu" and not torch.compiler.is_exporting()
