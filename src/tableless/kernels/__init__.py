"""Every compiled loop, and the machine's threads and memory. It imports nothing else of the library.

A loop is compiled by numba when it is first called, and kept on disk for the next process. Importing numba takes a
third of a second. So `embedding` and `serving` import a module with loops where a loop is called, and not at the top of
a file. Only `resources`, `idle_cores` and the names below come without numba.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
UInt8s = NDArray[np.uint8]


def uses_kernels(tensor: Tensor) -> bool:
    """Can the compiled loops work on this tensor? It must be on the CPU, and not part of a program to export."""
    return tensor.device.type == "cpu" and not torch.compiler.is_exporting()
