"""Bare parameters as tables: what stands in the place of `self.table = nn.Parameter(...)`, and finding it by name.

The code of a model does with such a parameter what it likes: it takes rows by ids, multiplies by all of it, and more.
So the module in its place acts as a tensor. Where rows are taken by ids, only those are computed; all else is done with
the vectors of all ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .drop_in import BareTable, DropIn, DropInEmbedding, DropInEmbeddingBag, DropInLinear
from .scheme import EmbeddingScheme

TablePlace = nn.Embedding | nn.EmbeddingBag | nn.Linear | BareTable
"""Where a table is used."""

_OPERATORS = [
    f"__{prefix}{name}__" for name in ("add", "sub", "mul", "matmul", "truediv", "pow") for prefix in ("", "r")
] + ["__neg__", "__lt__", "__le__", "__gt__", "__ge__", "__iter__", "__array__"]
# Methods that modules have too. What stands for a tensor must do what a tensor does.
_CONVERSIONS = ("to", "type", "float", "double", "half", "bfloat16", "cpu", "cuda")


class DropInParameter(DropIn):
    """A scheme where a bare parameter was. It can be used as the parameter was, but not be written to."""

    def forward(self, ids: Tensor) -> Tensor:
        """Int32 or int64 [...] -> [..., embedding_dim]."""
        return self.look_up(ids)

    def __getitem__(self, index: Any) -> Tensor:
        """Rows by a tensor of ids are computed for these ids alone."""
        if isinstance(index, Tensor) and index.dtype in (torch.int32, torch.int64):
            return self.look_up(torch.where(index < 0, index + self.num_embeddings, index))
        return self.weight[index]

    def __len__(self) -> int:
        return self.num_embeddings

    @property
    def shape(self) -> torch.Size:
        """That of the parameter."""
        return torch.Size((self.num_embeddings, self.embedding_dim))

    @property
    def requires_grad(self) -> bool:
        """Is the scheme trained?"""
        return any(parameter.requires_grad for parameter in self.scheme.parameters())

    @property
    def device(self) -> torch.device:
        """Where the vectors are computed."""
        return self._of_the_table.device

    def size(self, dim: int | None = None) -> Any:
        """As of a tensor."""
        return self.shape if dim is None else self.shape[dim]

    def __getattr__(self, name: str) -> Any:
        """What a tensor has and a module has not is that of the vectors of all ids."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_") or not hasattr(Tensor, name):
                raise
        return getattr(self.weight, name)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Every function of torch that is given such a module comes here first."""
        kwargs = dict(kwargs or {})
        table, ids = _looked_up(func, args, kwargs)
        if table is not None and ids is not None:
            return table.look_up(ids)
        return func(*_with_rows(args), **_with_rows(kwargs))


def _looked_up(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[DropInParameter | None, Tensor | None]:
    """The table and the ids, if rows are taken by ids."""
    if func is F.embedding and kwargs.get("max_norm") is None:
        given = dict(zip(("input", "weight"), args, strict=False)) | {**kwargs}
        table, ids = given.get("weight"), given.get("input")
    elif func is torch.index_select:
        given = dict(zip(("input", "dim", "index"), args, strict=False)) | {**kwargs}
        table, ids = (given.get("input"), given.get("index")) if given.get("dim") in (0, -2) else (None, None)
    else:
        return None, None
    return (table, ids) if isinstance(table, DropInParameter) and isinstance(ids, Tensor) else (None, None)


def _with_rows(arguments: Any) -> Any:
    """Arguments with the vectors of all ids in the place of the module."""
    if isinstance(arguments, DropInParameter):
        return arguments.weight
    if isinstance(arguments, Mapping):
        return {name: _with_rows(value) for name, value in arguments.items()}
    if type(arguments) in (tuple, list):
        return type(arguments)(_with_rows(value) for value in arguments)
    return arguments


def _as_tensor_does(name: str) -> Callable[..., Any]:
    def method(self: DropInParameter, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.weight, name)(*_with_rows(args), **kwargs)

    method.__doc__ = "As of a tensor, with the vectors of all ids."
    return method


for _name in (*_OPERATORS, *_CONVERSIONS):
    setattr(DropInParameter, _name, _as_tensor_does(_name))


def drop_in_for(table: TablePlace, scheme: EmbeddingScheme) -> DropIn:
    """The module that stands where the table was."""
    if isinstance(table, BareTable):
        return DropInParameter(scheme, table)
    if isinstance(table, nn.Linear):
        return DropInLinear(scheme, table)
    return DropInEmbedding(scheme, table) if isinstance(table, nn.Embedding) else DropInEmbeddingBag(scheme, table)


def put_at(model: nn.Module, name: str, drop_in: DropIn) -> None:
    """Put a drop-in at a name, in the place of a module or of a parameter."""
    owner, attribute = owner_of(model, name)
    if attribute in owner._parameters:
        del owner._parameters[attribute]
        owner.add_module(attribute, drop_in)
    else:
        model.set_submodule(name, drop_in)


def owner_of(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module that has what is called so, and the last part of the name."""
    path, _, attribute = name.rpartition(".")
    return model.get_submodule(path), attribute


def named_parameters_of(modules: Mapping[str, nn.Module]) -> Iterator[tuple[str, nn.Module, nn.Parameter]]:
    """Parameters that may be bare tables: their names, their owners, and themselves.

    Torch's own layers (Linear, LSTM) have large weights that are no tables; its parameter lists may hold some.
    """
    schemes = [name for name, module in modules.items() if isinstance(module, EmbeddingScheme)]
    for name, module in modules.items():
        is_layer = type(module).__module__.startswith("torch.nn.")
        if is_layer and not isinstance(module, (nn.ParameterList, nn.ParameterDict)):
            continue
        if any(name == scheme or name.startswith(f"{scheme}.") for scheme in schemes):
            continue
        for own, parameter in module.named_parameters(recurse=False):
            if parameter.ndim == 2:
                yield (f"{name}.{own}" if name else own), module, parameter
