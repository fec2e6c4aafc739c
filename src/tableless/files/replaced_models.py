"""A model with replaced tables as two files: `replaced.json` is the plan, `replaced.safetensors` has all weights.

The plan says which tables were replaced by which schemes. A library can build its model, but it does not know the plan.
The names differ from those that libraries use, so both can be kept in one directory. Files may come from anyone and are
checked before they are used; see `scheme_directory`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..embedding.bare_tables import TablePlace, drop_in_for, owner_of
from ..embedding.drop_in import BareTable, DropIn
from ..embedding.replacement import put_in_place
from ..embedding.scheme import EmbeddingScheme
from ..embedding.tables_in_model import Places
from .scheme_directory import Model, build_scheme, describe_scheme, read_json, refuse_long_loops, require_integers
from .whole import load_tensors, read_shapes, replacing, save_tensors, write_text

PLAN, ALL_WEIGHTS = "replaced.json", "replaced.safetensors"
_VERSION = 1
_SHOWN = 3  # names that a message lists


def save_replaced(model: nn.Module, directory: str | os.PathLike[str]) -> None:
    """Write a model whose tables were replaced: which schemes stand where, and the weights of the whole model.

    The files are `replaced.json` and `replaced.safetensors`. What else your library keeps about a model (its config,
    its tokenizer) is not in them; save that by the library's own means, in the same directory if you like. Schemes
    with weights of few bits are written packed; the model itself stays trainable.

    Args:
        model: A model that `tableless.replace_embeddings` has changed.
        directory: Where to write. It is made if it does not exist. Earlier files of these names are replaced.

    Raises:
        ValueError: No table of the model was replaced, or its state dict holds something other than tensors.
        OSError: The directory cannot be written to.

    Example:
        ```python
        import torch
        from tableless import replace_embeddings, save_replaced

        model = torch.nn.Sequential(torch.nn.Embedding(2_000, 16), torch.nn.Linear(16, 1))
        replace_embeddings(model, budget="1/16", min_rows=1_000, scheme="low-rank")
        save_replaced(model, "out/small")
        ```
    """
    replaced = _drop_ins(model)
    if not replaced:
        raise ValueError("no table of the model was replaced, so save it as usual; replace_embeddings comes before")
    state, tables = model.state_dict(), []
    for drop_ins in replaced:
        own = next(iter(drop_ins.values()))
        stored = own.scheme.stored()
        size = {"rows": own.num_embeddings, "embedding_dim": own.embedding_dim}
        tables.append({"names": list(drop_ins), **size, "scheme": describe_scheme(stored)})
        state = _with_scheme(state, stored, list(drop_ins))
    weights, same = _without_repetitions(state)
    plan = {"version": _VERSION, "tables": tables, "same_weights": same}
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / PLAN) as new_plan, replacing(folder / ALL_WEIGHTS) as new_weights:
        save_tensors(weights, new_weights)
        write_text(new_plan, json.dumps(plan, indent=2) + "\n")
        (folder / PLAN).unlink(missing_ok=True)  # so that an earlier plan never stands beside the new weights


def load_replaced(model: Model, directory: str | os.PathLike[str]) -> Model:
    """Make a freshly built model equal to one that `tableless.save_replaced` has written.

    The schemes are put where the tables are, and all weights are loaded. If anything is refused, the model is not
    changed.

    Args:
        model: The model as its code or its library builds it, with its tables. Its weights do not matter.
        directory: The directory that was written to.

    Returns:
        The same model. Its mode (training or eval) and its device stay. Schemes with weights of few bits are packed, as
        they were saved; to train further, call `unpack()` of each scheme (`model.get_submodule(name).scheme`) before
        you make the optimizer.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, or the model is not built as the saved one was.

    Example:
        ```python
        import torch
        from tableless import load_replaced, replace_embeddings, save_replaced

        def build():
            return torch.nn.Sequential(torch.nn.Embedding(2_000, 16), torch.nn.Linear(16, 1))

        model = build()
        replace_embeddings(model, budget="1/16", min_rows=1_000, scheme="low-rank")
        save_replaced(model, "out/small")
        same = load_replaced(build(), "out/small")
        ```
    """
    folder = Path(directory)
    plan, weights = folder / PLAN, folder / ALL_WEIGHTS
    content, shapes = read_json(plan), read_shapes(weights)
    if content.get("version") != _VERSION:
        raise ValueError(f"{plan} is of version {content.get('version')!r}; this library reads version {_VERSION}")
    try:
        for table in content["tables"]:
            refuse_long_loops(table, plan, weights.stat().st_size)
        described = [([str(name) for name in table["names"]], table) for table in content["tables"]]
        same = {str(name): str(other) for name, other in content["same_weights"].items()}
        with torch.device("meta"):  # without memory: what it asks for is first compared with the weights
            sketches = [build_scheme(table["scheme"]) for _, table in described]
        sizes = [(int(table["rows"]), int(table["embedding_dim"])) for _, table in described]
    except Exception as error:  # any error can follow from a wrong file, and the file is at fault
        raise ValueError(f"{plan} does not describe replaced tables: {type(error).__name__}: {error}") from error
    if not all(names for names, _ in described):
        raise ValueError(f"{plan} does not describe replaced tables: one has no name")
    places = [_tables_at(model, names, size) for (names, _), size in zip(described, sizes, strict=True)]
    _compare(_shapes_after(model, places, sketches), _repeated(shapes, same, plan), weights)
    tensors = _repeated(load_tensors(weights), same, plan)
    for (names, _), sketch in zip(described, sketches, strict=True):
        require_integers(sketch.state_dict(prefix=f"{names[0]}.scheme."), tensors, weights)
    for tables, (names, table) in zip(places, described, strict=True):
        put_in_place(model, tables, _with_weights(build_scheme(table["scheme"]), tensors, names[0], tables))
    model.load_state_dict(tensors)
    return model


def _drop_ins(model: nn.Module) -> list[dict[str, DropIn]]:
    """For each scheme of the model, the modules that use it, by name."""
    by_scheme: dict[int, dict[str, DropIn]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, DropIn):
            by_scheme.setdefault(id(module.scheme), {})[name] = module
    return list(by_scheme.values())


def _with_scheme(state: Mapping[str, Any], scheme: EmbeddingScheme, names: list[str]) -> dict[str, Any]:
    """The state dict of a model with this scheme in the places of these names."""
    prefixes = tuple(f"{name}.scheme." for name in names)
    weights = scheme.state_dict()
    others = {key: value for key, value in state.items() if not key.startswith(prefixes)}
    return others | {f"{prefix}{key}": value for prefix in prefixes for key, value in weights.items()}


def _without_repetitions(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Weights that are there under several names once, and which names stand for which."""
    weights: dict[str, Tensor] = {}
    same: dict[str, str] = {}
    first_names: dict[Any, str] = {}
    memories: set[int] = set()
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name!r} of the state dict is of type {type(tensor).__name__}; only tensors are saved")
        memory = tensor.untyped_storage()._cdata
        first = first_names.setdefault((memory, tensor.storage_offset(), tensor.shape, tensor.stride()), name)
        if first != name:
            same[name] = first
        else:  # a file of tensors cannot hold two that overlap
            weights[name] = tensor.clone() if memory in memories else tensor
            memories.add(memory)
    return weights, same


def _repeated(by_name: Mapping[str, Any], same: Mapping[str, str], plan: Path) -> dict[str, Any]:
    unknown = [first for first in same.values() if first not in by_name]
    if unknown:
        raise ValueError(f"{plan} names the weight {unknown[0]!r}, which {ALL_WEIGHTS} beside it does not have")
    return {**by_name, **{name: by_name[first] for name, first in same.items()}}


def _tables_at(model: nn.Module, names: list[str], size: tuple[int, int]) -> Places:
    places: Places = {}
    modules = dict(model.named_modules(remove_duplicate=False))
    # A Linear is no table by itself: it has the weight of one that is named beside it.
    beside = [_bare_table(model, name) or modules.get(name) for name in names]
    tied = {id(own.weight) for own in beside if isinstance(own, TablePlace) and not isinstance(own, nn.Linear)}
    for name in names:
        found = modules.get(name)
        if isinstance(found, DropIn):
            raise ValueError(f"{name!r} is replaced already; give the model as it is built, before any replacement")
        table = _bare_table(model, name) if found is None else found
        if not isinstance(table, TablePlace) or (isinstance(table, nn.Linear) and id(table.weight) not in tied):
            told = "has no such module" if table is None else f"has a {type(table).__name__} there"
            raise ValueError(f"the saved model has a table at {name!r}; the model given {told}. Build it as that was")
        if tuple(table.weight.shape) != size:
            raise ValueError(
                f"{name!r} has {len(table.weight)} rows of {table.weight.shape[-1]}; that of the saved model has "
                f"{size[0]} of {size[1]}. Build the model as that was"
            )
        if table.weight.is_meta:
            raise ValueError(f"{name!r} is on the meta device; build the model on a device with memory")
        places[name] = table
    return places


def _bare_table(model: nn.Module, name: str) -> TablePlace | None:
    """The parameter of this name as a table."""
    try:
        owner, attribute = owner_of(model, name)
    except AttributeError:
        return None
    parameter = owner._parameters.get(attribute)
    return None if parameter is None or parameter.ndim != 2 else BareTable(parameter, owner.training)


def _shapes_after(model: nn.Module, places: list[Places], sketches: list[EmbeddingScheme]) -> dict[str, list[int]]:
    """The names and shapes of the model's weights when its tables are replaced."""
    shapes = {name: list(tensor.shape) for name, tensor in model.state_dict().items() if isinstance(tensor, Tensor)}
    for tables, scheme in zip(places, sketches, strict=True):
        for name, table in tables.items():
            del shapes[name if isinstance(table, BareTable) else f"{name}.weight"]
            own = drop_in_for(table, scheme).state_dict()
            shapes |= {f"{name}.{part}": list(tensor.shape) for part, tensor in own.items()}
    return shapes


def _compare(expected: Mapping[str, list[int]], found: Mapping[str, list[int]], weights: Path) -> None:
    missing, unknown = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    other = [name for name in expected if name in found and expected[name] != found[name]]
    faults = {"lacks": missing, "has, and the model has not,": unknown, "has in another shape": other}
    for fault, names in faults.items():
        if names:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            raise ValueError(
                f"{weights} {fault} {', '.join(names[:_SHOWN])}{more}. It belongs to another plan, or the model is not "
                "built as the saved one was"
            )


def _with_weights(scheme: EmbeddingScheme, tensors: Mapping[str, Tensor], name: str, tables: Places) -> EmbeddingScheme:
    """The scheme with its weights as they were saved, also in their type: a model may have been halved."""
    prefix = f"{name}.scheme."
    own = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
    scheme.load_state_dict(own, assign=True)
    return scheme.to(next(iter(tables.values())).weight.device)
