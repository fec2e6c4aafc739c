"""`replace_embeddings` replaces the large tables of any PyTorch model by schemes, without the data of its training."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from .choices import require_known_name
from .distillation import Distillation
from .distillation import distil as fit_to_rows
from .drop_in import DropInEmbedding, DropInEmbeddingBag
from .hashing import derive_seed
from .scheme import Budget, EmbeddingScheme, resolve_budget
from .schemes import SCHEMES

Table = nn.Embedding | nn.EmbeddingBag


@dataclass(frozen=True)
class Replacement:
    """A table that `tableless.replace_embeddings` has replaced.

    Attributes:
        names: The dotted names that the table had in the model. A shared table has several.
        rows: How many rows it had.
        embedding_dim: Dimensions of a row.
        parameters_before: Parameters of the table.
        parameters_after: Parameters of the scheme in its place.
        unexplained: The share of the table that is lost, as in `tableless.Distillation`. None with `distil=False`.
        mean_cosine: The mean cosine of rows and fitted vectors. None with `distil=False`.
        seconds: How long it took.

    Example:
        ```python
        import torch
        from tableless import replace_embeddings

        model = torch.nn.Sequential(torch.nn.Embedding(2_000, 16), torch.nn.Linear(16, 1))
        (table,) = replace_embeddings(model, budget="1/4", min_rows=1_000, scheme="low-rank")
        print(table.name, table.parameters_before, table.parameters_after, table.unexplained)
        ```
    """

    names: tuple[str, ...]
    rows: int
    embedding_dim: int
    parameters_before: int
    parameters_after: int
    unexplained: float | None
    mean_cosine: float | None
    seconds: float

    @property
    def name(self) -> str:
        """The first of the names."""
        return self.names[0]


def replace_embeddings(
    model: nn.Module,
    budget: Budget = "1/4",
    *,
    scheme: str = "dhe",
    min_rows: int = 10_000,
    distil: bool = True,
    exclude: Sequence[str] = (),
    visits: int | None = None,
    seed: int = 0,
) -> list[Replacement]:
    """Replace the large tables of a trained model by schemes that are fitted to them.

    Every `nn.Embedding` and `nn.EmbeddingBag` with at least `min_rows` rows is replaced in place; the code of the model
    stays as it is. Tables that are shared stay shared. If anything is refused, the model is not changed.

    An optimizer that was made before still holds the old tables. Make a new one if you train further.

    Args:
        model: Any PyTorch model that holds tables.
        budget: The size of the schemes. A share of each table (`"1/4"`); or a number of parameters or memory (`"64MB"`)
            for all tables together, which is divided in proportion to their sizes.
        scheme: A name of `tableless.SCHEMES`.
        min_rows: Tables with fewer rows are left alone.
        distil: Fit each scheme to its table. With False it starts untrained: to be trained, or to load the state dict
            of a model that was replaced with the same arguments.
        exclude: Dotted names of tables, or of modules that hold tables, to leave alone.
        visits: How often the fit visits each row; unless given, as often as `tableless.distil` does by default.
        seed: Everything random follows from it.

    Returns:
        A report for each table that was replaced.

    Raises:
        ValueError: A table cannot be replaced, or the budget is too small or larger than the tables. The message says
            what to do.

    Example:
        ```python
        import torch
        from tableless import replace_embeddings

        model = torch.nn.Sequential(torch.nn.EmbeddingBag(1_000, 16), torch.nn.Linear(16, 1))  # one that is trained
        for table in replace_embeddings(model, budget="1/4", min_rows=1_000, scheme="low-rank"):
            print(table.name, table.parameters_before, "→", table.parameters_after)
        ```
    """
    require_known_name("scheme", scheme, SCHEMES)
    tables = _find_tables(model, min_rows=min_rows, exclude=exclude)
    if not tables:
        return []
    schemes = _size_schemes(tables, budget, kind=SCHEMES[scheme], seed=seed)
    replacements = []
    for places, new in zip(tables, schemes, strict=True):
        start = time.perf_counter()
        fit = _fit(new, places, visits=visits, seed=seed) if distil else None
        replacements.append(_report(places, new, fit, seconds=time.perf_counter() - start))
    for places, new in zip(tables, schemes, strict=True):
        _put_in_place(model, places, new)
    return replacements


def _find_tables(model: nn.Module, *, min_rows: int, exclude: Sequence[str]) -> list[dict[str, Table]]:
    """The tables to replace. For each one, the modules that use it, by name."""
    if isinstance(model, Table):
        raise ValueError(
            f"the model is itself an nn.{type(model).__name__}; a table can only be replaced inside another module. "
            "Wrap it in an nn.Sequential, or build a scheme and fit it by tableless.distil(table, scheme)"
        )
    modules = dict(model.named_modules(remove_duplicate=False))
    for name in exclude:
        if name not in modules:
            raise ValueError(f"exclude names {name!r}, but the model has no module of that name")
    tables: dict[int, dict[str, Table]] = {}
    for name, module in modules.items():
        excluded = any(name == other or name.startswith(f"{other}.") for other in exclude)
        if isinstance(module, Table) and module.num_embeddings >= min_rows and not excluded:
            _require_plain(name, module)
            tables.setdefault(id(module.weight), {})[name] = module
    for places in tables.values():
        _require_unused_elsewhere(places, modules)
    return list(tables.values())


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


def _require_unused_elsewhere(places: Mapping[str, Table], modules: Mapping[str, nn.Module]) -> None:
    name, table = next(iter(places.items()))
    for other, module in modules.items():
        if other not in places and any(parameter is table.weight for parameter in module.parameters(recurse=False)):
            raise ValueError(
                f"the table of {name!r} is also a weight of {other or 'the model itself'!r} ({type(module).__name__}), "
                f"where it would stay; give that a weight of its own, or leave the table alone with "
                f"exclude={list(places)}"
            )


def _size_schemes(
    tables: Sequence[Mapping[str, Table]], budget: Budget, *, kind: type[EmbeddingScheme], seed: int
) -> list[EmbeddingScheme]:
    named = [next(iter(places.items())) for places in tables]
    total = sum(table.weight.numel() for _, table in named)
    allowed = resolve_budget(budget, embedding_dim=1, vocab_size=total)
    if allowed > total:
        raise ValueError(
            f"a budget of {allowed} parameters is met already: the tables have {total}. Give a smaller one"
        )
    schemes = []
    for name, table in named:
        try:
            new = kind.from_budget(
                allowed * table.weight.numel() // total,
                embedding_dim=table.embedding_dim,
                vocab_size=table.num_embeddings,
                seed=derive_seed(seed, name),
            )
        except ValueError as error:
            raise ValueError(f"{name!r}: {error}; or leave the table alone with exclude=[{name!r}]") from None
        schemes.append(new.to(table.weight.device))
    return schemes


def _fit(scheme: EmbeddingScheme, places: Mapping[str, Table], *, visits: int | None, seed: int) -> Distillation:
    name, table = next(iter(places.items()))
    rows = table.weight.detach().float()
    if not rows.isfinite().all() or not rows.any():
        raise ValueError(
            f"the table of {name!r} is all zero or not finite, so there is nothing to fit to; give distil=False, or "
            f"leave the table alone with exclude=[{name!r}]"
        )
    fit = fit_to_rows(rows, scheme, visits=visits, seed=seed)
    scheme.zero_grad()  # so that the caller does not find the gradients of the last step
    return fit


def _report(
    places: Mapping[str, Table], scheme: EmbeddingScheme, fit: Distillation | None, *, seconds: float
) -> Replacement:
    table = next(iter(places.values()))
    return Replacement(
        names=tuple(places),
        rows=table.num_embeddings,
        embedding_dim=table.embedding_dim,
        parameters_before=table.weight.numel(),
        parameters_after=scheme.num_parameters,
        unexplained=fit.unexplained if fit else None,
        mean_cosine=fit.mean_cosine if fit else None,
        seconds=seconds,
    )


def _put_in_place(model: nn.Module, places: Mapping[str, Table], scheme: EmbeddingScheme) -> None:
    """Put a new module at each of the names.

    Names that had one module get one module again. Modules that shared a table share the scheme.
    """
    drop_ins: dict[int, nn.Module] = {}
    for name, table in places.items():
        if id(table) not in drop_ins:
            drop_ins[id(table)] = _drop_in(scheme, table)
        model.set_submodule(name, drop_ins[id(table)])
    scheme.requires_grad_(next(iter(places.values())).weight.requires_grad)


def _drop_in(scheme: EmbeddingScheme, table: Table) -> nn.Module:
    return DropInEmbedding(scheme, table) if isinstance(table, nn.Embedding) else DropInEmbeddingBag(scheme, table)
