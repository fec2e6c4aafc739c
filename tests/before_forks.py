"""Imports what a forked child would import first thing, so that not every child does: two seconds for each.

For programs that fork and let the children work. Nothing is started here that a child could not have from its parent.
"""

import pyarrow.dataset  # noqa: F401 - it imports pandas
import torch._dynamo  # noqa: F401
from numba.core.registry import cpu_target

import tableless.data.reading.parquet
import tableless.kernels.activations
import tableless.kernels.id_loops
import tableless.kernels.pair_loops  # noqa: F401

# What numba needs to load compiled code. It comes after the kernels, which say for which processor numba compiles.
cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
