"""Which tables of a model can be replaced, which are left alone and why, and what else in the model holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

from ..hints import did_you_mean
from .bare_tables import TablePlace, named_parameters_of
from .drop_in import BareTable, DropIn
from .replacement_report import LeftAlone

Table = nn.Embedding | nn.EmbeddingBag
Places = dict[str, TablePlace]
"""What uses one table, by name. Most tables have one such module. The first has the shape of the table."""


def find_tables(
    model: nn.Module, *, min_rows: int, exclude: Sequence[str], parameters: Sequence[str] = ()
) -> tuple[list[Places], list[LeftAlone]]:
    """The tables to replace, and those to leave alone. `parameters` names bare parameters that are tables."""
    _require_model(model)
    modules = dict(model.named_modules(remove_duplicate=False))
    for name in exclude:
        if name not in modules:
            raise ValueError(f"exclude names {name!r}, but the model has no module of that name")
    tables: dict[int, Places] = {}
    left_alone = []
    for name, module in modules.items():
        reason = _reason_to_leave(name, module, min_rows=min_rows, exclude=exclude)
        if reason:
            left_alone.append(LeftAlone(name, reason))
        elif isinstance(module, Table):
            _require_plain(name, module)
            tables.setdefault(id(module.weight), {})[name] = module
    bare = {name: (owner, parameter) for name, owner, parameter in named_parameters_of(modules)}
    for name in parameters:
        if name not in bare:
            raise ValueError(
                f"parameters names {name!r}, but no parameter of two dimensions has that name"
                f"{did_you_mean(name, bare)}. Tables in an nn.Embedding are found without it"
            )
        owner, parameter = bare[name]
        tables.setdefault(id(parameter), {})[name] = BareTable(parameter, owner.training)
    for places in tables.values():
        _add_output_layers(places, modules)
        _require_unused_elsewhere(places, modules)
    taken = {name for places in tables.values() for name in places}
    others = (own for own in _bare_parameters(modules, min_rows=min_rows) if own.name not in taken)
    return list(tables.values()), [*left_alone, *others]


def fields_of_tables(
    tables: Sequence[Places], fields: Mapping[str, Sequence[int]], *, min_rows: int
) -> dict[str, list[int]]:
    """The sizes of the fields of each table, by the first name of the table."""
    by_name = {name: places for places in tables for name in places}
    found: dict[str, list[int]] = {}
    for name, sizes in fields.items():
        if name not in by_name:
            raise ValueError(
                f"fields names {name!r}, but no table of that name is replaced{did_you_mean(name, by_name)}"
            )
        first, table = next(iter(by_name[name].items()))
        own, rows = [int(size) for size in sizes], len(table.weight)
        if sum(own) != rows or any(size < 1 for size in own):
            raise ValueError(
                f"the fields of {name!r} have {sum(own)} rows together, each at least 1; the table has {rows}. Give "
                "the number of rows of each field, not where it begins"
            )
        if max(own) < min_rows:
            raise ValueError(
                f"no field of {name!r} has min_rows={min_rows} rows; give a smaller min_rows, leave the table alone "
                f"with exclude=[{name!r}], or leave fields away to have one scheme for all of it"
            )
        found[first] = own
    return found


def names_that_hold(model: nn.Module, tables: Sequence[Places]) -> list[str]:
    """Attributes of modules that hold one of the tables or its weight, and would hold it after it is replaced.

    Torch knows its own modules and parameters. It does not know lists, tuples, dictionaries and optimizers that a model
    keeps beside them.
    """
    old = {id(thing) for places in tables for table in places.values() for thing in (table, table.weight)}
    replaced = {id(table) for places in tables for table in places.values()}
    names = []
    for path, module in model.named_modules():
        if id(module) in replaced:
            continue
        for attribute, value in vars(module).items():
            if attribute not in ("_parameters", "_modules", "_buffers") and _holds(value, old):
                names.append(f"{path}.{attribute}" if path else attribute)
    return names


def _require_model(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        inside = [name for name, value in getattr(model, "__dict__", {}).items() if isinstance(value, nn.Module)]
        hint = f"; its attribute {inside[0]!r} is one, so give that" if inside else ""
        raise TypeError(f"the model is of type {type(model).__name__}, which is no torch.nn.Module{hint}")
    if isinstance(model, Table):
        raise ValueError(
            f"the model is itself an nn.{type(model).__name__}; a table can only be replaced inside another module. "
            "Wrap it in an nn.Sequential, or build a scheme and fit it by tableless.distil(table, scheme)"
        )


def _reason_to_leave(name: str, module: nn.Module, *, min_rows: int, exclude: Sequence[str]) -> str | None:
    if isinstance(module, DropIn):
        return "it was replaced before"
    if not isinstance(module, Table):
        return None
    if any(name == other or name.startswith(f"{other}.") for other in exclude):
        return "exclude names it"
    if module.num_embeddings < min_rows:
        return f"it has {module.num_embeddings:,} rows, fewer than min_rows={min_rows}"
    if module.embedding_dim == 1:
        return "it has one column (a linear term): there is nothing to save in a row of one number, and it fits badly"
    return None


def _require_plain(name: str, table: Table) -> None:
    """Refuse a table with features that the module in its place would not have."""
    kind = nn.Embedding if isinstance(table, nn.Embedding) else nn.EmbeddingBag
    if type(table).forward is not kind.forward:
        reason = f"is a {type(table).__name__} with a forward of its own"
    elif "weight" not in table._parameters:
        reason = "computes its weight (by a parametrization?)"
    elif table.max_norm is not None or table.scale_grad_by_freq:
        reason = "uses max_norm or scale_grad_by_freq, which change single rows; a scheme has no such rows"
    elif table._forward_hooks or table._forward_pre_hooks or table._backward_hooks:
        reason = "has hooks, which would be lost"
    else:
        return
    raise ValueError(f"{name!r} {reason}; undo that, or leave the table alone with exclude=[{name!r}]")


def _add_output_layers(places: Places, modules: Mapping[str, nn.Module]) -> None:
    """Linear layers that have the table as their weight: the output layers of language models."""
    weight = next(iter(places.values())).weight
    for name, module in modules.items():
        if not isinstance(module, nn.Linear) or module._parameters.get("weight") is not weight:
            continue
        if type(module).forward is nn.Linear.forward and not (module._forward_hooks or module._forward_pre_hooks):
            places[name] = module


def _require_unused_elsewhere(places: Places, modules: Mapping[str, nn.Module]) -> None:
    name, table = next(iter(places.items()))
    for other, module in modules.items():
        for own, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            full = f"{other}.{own}" if other else own
            if parameter is table.weight and other not in places and full not in places:
                raise ValueError(
                    f"the table of {name!r} is also a weight of {other or 'the model itself'!r} "
                    f"({type(module).__name__}), where it would stay. If the model's code uses it there as a table, "
                    f"give parameters=[{full!r}]; else give that a weight of its own, or leave the table alone with "
                    f"exclude={list(places)}"
                )


def _bare_parameters(modules: Mapping[str, nn.Module], *, min_rows: int) -> Iterator[LeftAlone]:
    """Parameters that look like tables, but belong to no module that looks rows up."""
    for name, _, parameter in named_parameters_of(modules):
        if min_rows <= len(parameter) > parameter.shape[1]:
            reason = (
                f"it is a bare parameter of {len(parameter):,} rows, and only the model's code knows how it is used; "
                f"if it is a table, give parameters=[{name!r}]"
            )
            yield LeftAlone(name, reason)


def _holds(value: Any, old: set[int]) -> bool:
    """Is one of the old things in it, at any depth of lists, tuples, sets, dictionaries and optimizers?"""
    waiting, seen = [value], set[int]()
    while waiting:
        own = waiting.pop()
        if id(own) in old:
            return True
        if id(own) in seen:
            continue
        if isinstance(own, dict):
            waiting.extend(own.values())
        elif isinstance(own, (list, tuple, set, frozenset)):
            waiting.extend(own)
        elif isinstance(own, Optimizer):
            waiting.append(own.param_groups)
        else:
            continue
        seen.add(id(own))
    return False
