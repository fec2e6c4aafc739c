"""The rows that a scheme computes for all ids at once, as a tensor that cannot be written to.

`emb.weight` of a replaced table is such a tensor. It looks like the weight of a table, but it is a result: a number
written into it would never reach the scheme. So writing is refused, and not lost in silence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

REFUSAL = (
    "the weight of a replaced table is computed by its scheme, so it cannot be written to. Train the scheme, or take a "
    "copy of the rows by weight.detach().clone(). To begin with other rows, set them in the table before "
    "replace_embeddings"
)
_WRITES = re.compile(r".*[^_]_|__set__|__delete__|__setitem__|__i(add|sub|mul|truediv|floordiv|mod|pow|and|or|xor)__")
_BASE = Tensor._base.__get__  # type: ignore[union-attr]


class ComputedRows(Tensor):
    """A tensor that is read like any other. Writing to it, or to a view of it, is an error.

    What is computed from it is a plain tensor. Only views stay of this kind, because they share its memory.
    """

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Every function of torch that is given such a tensor comes here first."""
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():  # a compiler looks for nothing but the function itself
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if any(isinstance(target, cls) for target in _written(func, args, kwargs)):
            raise RuntimeError(REFUSAL)
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
            if func == _BASE:
                return result  # a view of the base would have a base again, without end
            return _protect(result, {_memory(own) for own in _tensors(args, kwargs) if isinstance(own, cls)})

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A copy has memory of its own, so it is a plain tensor."""
        return self.clone()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Saved by `torch.save` it is a plain tensor, so that it can be read without this library."""
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor).__reduce_ex__(protocol)  # type: ignore[no-untyped-call]


def _written(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments that the function writes to: by torch's custom its name says so, or they are called `out`."""
    out = kwargs.get("out")
    written = list(out) if isinstance(out, (tuple, list)) else [out]
    if _WRITES.fullmatch(getattr(func, "__name__", "")):
        written.append(args[0] if args else kwargs.get("tensor", kwargs.get("input")))
    return written


def _tensors(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    return [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata  # a number for each piece of memory, also where it has no address (meta)


def _protect(result: Any, memories: set[int]) -> Any:
    """Results that share memory with the rows cannot be written to either."""
    if isinstance(result, Tensor):
        shares = type(result) is Tensor and result.layout == torch.strided and _memory(result) in memories
        return result.as_subclass(ComputedRows) if shares else result
    if isinstance(result, np.ndarray):
        result.flags.writeable = False
    elif type(result) in (tuple, list):
        return type(result)(_protect(one, memories) for one in result)
    return result
