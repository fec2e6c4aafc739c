"""`replace_embeddings`: the large tables of any PyTorch model become schemes, in place, without its data."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from .distillation import Distillation
from .distillation import distil as fit_to_rows
from .drop_in import DropInEmbedding, DropInEmbeddingBag
from .hashing import derive_seed
from .scheme import Budget, EmbeddingScheme, resolve_budget
from .schemes import SCHEMES

Table = nn.Embedding | nn.EmbeddingBag


@dataclass(frozen=True)
class Replacement:
    """A table that was replaced. `unexplained` is the share of its variance that is lost; None without distillation."""

    names: tuple[str, ...]  # where in the model, dotted; several for a shared table
    rows: int
    embedding_dim: int
    parameters_before: int
    parameters_after: int
    unexplained: float | None
    mean_cosine: float | None
    seconds: float

    @property
    def name(self) -> str:
        """The first of its names."""
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
    """Replace every `nn.Embedding` and `nn.EmbeddingBag` with at least `min_rows` rows, in place, by a scheme.

    A share ("1/4") is of each table; a number of parameters or memory ("64MB") is for all of them together, shared in
    proportion to their sizes. With `distil` each scheme is fitted to the rows of its table, each row visited `visits`
    times (if not given, as `tableless.distil` has it); without, it starts fresh: to be trained, or to load the
    state dict of a model that was replaced with the same arguments.

    `exclude` are dotted names of tables, or of modules that hold them, to leave alone. Shared tables stay shared.
    Optimizers hold the old parameters: make them after replacing. If anything is refused, the model is as it was.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"no scheme is called {scheme!r}; known are {', '.join(SCHEMES)}")
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
    """For each distinct table to replace, the modules that look up in it, by name."""
    if isinstance(model, Table):
        raise ValueError(
            f"the model is itself an nn.{type(model).__name__}, which nothing holds that it could be replaced in; wrap "
            "it in a module such as nn.Sequential, or build a scheme and fit it by tableless.distil(table, scheme)"
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
    """Refuse what a drop-in would silently do differently."""
    kind = nn.Embedding if isinstance(table, nn.Embedding) else nn.EmbeddingBag
    if type(table).forward is not kind.forward:
        reason = f"is a {type(table).__name__} with a forward of its own"
    elif "weight" not in table._parameters:
        reason = "computes its weight (by a parametrization?)"
    elif table.max_norm is not None or table.scale_grad_by_freq:
        reason = "uses max_norm or scale_grad_by_freq, which change single rows, and there will be no rows"
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
                f"which would keep it; untie them, or leave the table alone with exclude={list(places)}"
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
    scheme.zero_grad()  # the last step's gradients are not the caller's
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
    """Names of one module get one module, modules of one table one scheme."""
    drop_ins: dict[int, nn.Module] = {}
    for name, table in places.items():
        if id(table) not in drop_ins:
            drop_ins[id(table)] = _drop_in(scheme, table)
        model.set_submodule(name, drop_ins[id(table)])
    scheme.requires_grad_(next(iter(places.values())).weight.requires_grad)


def _drop_in(scheme: EmbeddingScheme, table: Table) -> nn.Module:
    return DropInEmbedding(scheme, table) if isinstance(table, nn.Embedding) else DropInEmbeddingBag(scheme, table)
