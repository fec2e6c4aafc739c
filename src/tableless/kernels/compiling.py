"""`compiled`: how every loop here is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import llvmlite.binding as llvm
import numba
import numba.extending

Function = TypeVar("Function", bound=Callable[..., Any])

# The parts of fast math that change no rounding: a result must not depend on a number's place in a vector.
FAST_MATH = {"nnan", "ninf", "nsz"}

# LLVM prefers 256-bit vectors even if 512-bit ones nearly halve the time of our loops. numba can only be told otherwise
# for the whole process, before it compiles anything. A setting of the user's is kept.
_config: Any = numba.config
if _config.CPU_NAME is None and llvm.get_host_cpu_features().get("avx512f"):
    _config.CPU_NAME = llvm.get_host_cpu_name()
    _config.CPU_FEATURES = llvm.get_host_cpu_features().flatten() + ",-prefer-256-bit"


def compiled(
    *, inline: Literal["never", "always"] = "never", fastmath: set[str] | bool = False
) -> Callable[[Function], Function]:
    """A decorator that compiles a loop over arrays. `inline="always"` is for parts of loops.

    The code is kept on disk for the next process, and runs without Python's lock. The numpy error model has no check
    for a zero divisor. With that check, loops with a division would not be vectorised.
    """
    decorator: Any = numba.njit(cache=True, nogil=True, error_model="numpy", inline=inline, fastmath=fastmath)
    return decorator


def _float_of_bits(typing_context: Any, bits: Any) -> Any:
    return numba.float32(numba.int32), _reinterpreted


def _bits_of_float(typing_context: Any, number: Any) -> Any:
    return numba.int32(numba.float32), _reinterpreted


def _reinterpreted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))


def _count_ones(typing_context: Any, bits: Any) -> Any:
    return numba.uint64(numba.uint64), _counted


def _counted(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.ctpop(arguments[0])


_in_loops: Any = numba.extending.intrinsic

float_of_bits = _in_loops(_float_of_bits)
"""Within a loop: the float32 that has the bits of an int32. A view of an array would do the same through memory."""

bits_of_float = _in_loops(_bits_of_float)
"""Within a loop: the bits of a float32 as an int32."""

count_ones = _in_loops(_count_ones)
"""Within a loop: how many bits of a uint64 are set. Numba has no name for this instruction of the processor."""
