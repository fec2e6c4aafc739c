"""`replace_embeddings` replaces the large tables of any PyTorch model by schemes, without the data of its training."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from ..hints import require_known_name
from .bare_tables import drop_in_for, put_at
from .budget import BYTES_PER_PARAMETER, Budget, is_share, resolve_budget
from .by_field import EmbeddingByField
from .distillation import Distillation
from .distillation import distil as fit_to_rows
from .drop_in import DropIn
from .hashing import derive_seed
from .replacement_report import Replacement, Replacements
from .scheme import EmbeddingScheme
from .schemes import AUTO, SCHEMES, kind_for_rows
from .tables_in_model import Places, fields_of_tables, find_tables, names_that_hold

_SHOWN = 5  # tables that a warning lists


def replace_embeddings(
    model: nn.Module,
    budget: Budget = "1/16",
    *,
    scheme: str = AUTO,
    min_rows: int = 10_000,
    distil: bool = True,
    exclude: Sequence[str] = (),
    parameters: Sequence[str] = (),
    fields: Mapping[str, Sequence[int]] | None = None,
    visits: int | None = None,
    seed: int = 0,
    dry_run: bool = False,
    progress: Callable[..., Any] | None = None,
) -> Replacements:
    """Replace the large tables of a trained model by schemes that are fitted to them.

    Every `nn.Embedding` and `nn.EmbeddingBag` with at least `min_rows` rows is replaced in place; the code of the model
    stays as it is. Tables that are shared stay shared, also with an output layer (`nn.Linear`) that has the table as
    its weight: that computes the vectors of all ids once for each call. Tables with one column (linear terms) are left
    alone, because they fit badly. If anything is refused, the model is not changed.

    An optimizer that was made before still holds the old tables. Make a new one if you train further.

    Args:
        model: Any PyTorch model that holds tables.
        budget: The size of the schemes. For each table: a share of its bytes in float32 (`"1/16"`), or bytes for each
            of its ids (`"8B/id"`). For all tables together, in proportion to their sizes: memory (`"64MB"`), or a
            number of parameters (`"20000 parameters"`). `"1/4 parameters"` is a share of each table's parameters.
        scheme: A name of `tableless.SCHEMES`. Unless given, the one that keeps most of a table whose ids are all known,
            fitted in seconds: `quantized` where the budget pays for rows of 8 bits, else `coded`
            (`tableless.choose_scheme` has the rule). Write `"dhe"` if the model will be asked about new ids.
        min_rows: Tables with fewer rows are left alone.
        distil: Fit each scheme to its table. With False it starts untrained: to be trained, or to load the state dict
            of a model that was replaced with the same arguments.
        exclude: Dotted names of tables, or of modules that hold tables, to leave alone.
        parameters: Dotted names of bare parameters (`self.table = nn.Parameter(...)`) that the model's code uses as
            tables. The code may go on using them as before, but not write to them.
        fields: For tables that many fields share by offsets, by the dotted name of the table: how many rows each field
            has, in order. Each field then has a scheme of its own, and fields of fewer than `min_rows` rows keep their
            rows. Without it one scheme stands for all of the table.
        visits: How often the fit visits each row; unless given, as often as `tableless.distil` does by default.
        seed: Everything random follows from it.
        dry_run: Print which tables would be replaced, with their sizes before and after, and change nothing.
        progress: Is handed on to `tableless.distil` for each table.

    Returns:
        A list with a report for each table that was replaced. Its `left_alone` names the other tables and says why. Its
        `still_referring` names lists and optimizers inside the model that still hold an old table. A warning says so
        too, and also if no table is replaced.

    Raises:
        TypeError: The model is no `torch.nn.Module`.
        ValueError: A table cannot be replaced, or the budget is too small or larger than the tables. The message says
            what to do.

    Example:
        ```python
        import torch
        from tableless import replace_embeddings

        model = torch.nn.Sequential(torch.nn.EmbeddingBag(1_000, 16), torch.nn.Linear(16, 1))  # one that is trained
        for table in replace_embeddings(model, budget="1/8", min_rows=1_000):
            print(table.name, table.bytes_before, "→", table.bytes_after)
        ```
    """
    require_known_name("scheme", scheme, [AUTO, *SCHEMES])
    tables, left_alone = find_tables(model, min_rows=min_rows, exclude=exclude, parameters=parameters)
    own_fields = fields_of_tables(tables, fields or {}, min_rows=min_rows)
    result = Replacements(left_alone=left_alone, still_referring=names_that_hold(model, tables))
    # On the meta device, where a dry run builds the schemes, they have sizes and take no memory and no time.
    with torch.device("meta") if dry_run else nullcontext():
        own: dict[str, Any] = {"scheme": scheme, "seed": seed, "min_rows": min_rows, "fields": own_fields}
        schemes = _size_schemes(tables, budget, **own) if tables else []
    if dry_run:
        result.extend(_report(places, new, None, seconds=0.0) for places, new in zip(tables, schemes, strict=True))
        print(result)
        return result
    if distil:
        _require_rows(tables)
    for places, new in zip(tables, schemes, strict=True):
        start = time.perf_counter()
        new.to(next(iter(places.values())).weight.device)
        fit = _fit(new, places, visits=visits, seed=seed, progress=progress) if distil else None
        result.append(_report(places, new, fit, seconds=time.perf_counter() - start))
    for places, new in zip(tables, schemes, strict=True):
        put_in_place(model, places, new)
    _warn_of_surprises(result)
    return result


def _warn_of_surprises(result: Replacements) -> None:
    if not result:
        found = (
            "; ".join(map(str, result.left_alone[:_SHOWN])) or "the model has no nn.Embedding and no nn.EmbeddingBag"
        )
        more = f"; and {len(result.left_alone) - _SHOWN} more" if len(result.left_alone) > _SHOWN else ""
        warnings.warn(f"no table was replaced ({found}{more})", stacklevel=3)
    if result.still_referring:
        warnings.warn(
            f"still holding tables that were replaced: {', '.join(result.still_referring)}. What uses these attributes "
            "works with the old weights; make them anew from the model as it is now",
            stacklevel=3,
        )


def _size_schemes(
    tables: Sequence[Places],
    budget: Budget,
    *,
    scheme: str,
    seed: int,
    min_rows: int,
    fields: Mapping[str, Sequence[int]],
) -> list[EmbeddingScheme]:
    named = [next(iter(places.items())) for places in tables]
    total = sum(table.weight.numel() for _, table in named)
    allowed = None if is_share(budget) else resolve_budget(budget, embedding_dim=1, vocab_size=total)
    if allowed is not None and allowed.num_bytes > total * BYTES_PER_PARAMETER:
        raise ValueError(
            f"a budget of {allowed} is met already: the tables have {total} parameters of {BYTES_PER_PARAMETER} bytes. "
            "Give a smaller one"
        )
    schemes = []
    for name, table in named:
        own = budget if allowed is None else allowed.share(table.weight.numel(), total)
        try:
            rows, own_seed = table.weight.detach(), derive_seed(seed, name)
            new: EmbeddingScheme
            if name in fields:
                more: dict[str, Any] = {"scheme": scheme, "min_rows": min_rows, "seed": own_seed}
                new = EmbeddingByField.for_fields(own, rows, fields[name], **more)
            else:
                new = kind_for_rows(scheme, rows, own).for_rows(own, rows, seed=own_seed)
        except ValueError as error:
            raise ValueError(f"{name!r}: {error}; or leave the table alone with exclude=[{name!r}]") from None
        schemes.append(new)
    return schemes


def _require_rows(tables: Sequence[Places]) -> None:
    """Refuse tables that a scheme cannot be fitted to, before the first fit takes its time."""
    for places in tables:
        name, table = next(iter(places.items()))
        if table.weight.is_meta:
            reason = "is on the meta device (it has a shape and no numbers; load the weights first)"
        elif not table.weight.isfinite().all() or not table.weight.any():
            reason = "is all zero or not finite"
        else:
            continue
        raise ValueError(
            f"the table of {name!r} {reason}, so there is nothing to fit to; give distil=False, or leave the table "
            f"alone with exclude=[{name!r}]"
        )


def _fit(
    scheme: EmbeddingScheme,
    places: Places,
    *,
    visits: int | None,
    seed: int,
    progress: Callable[..., Any] | None,
) -> Distillation:
    rows = next(iter(places.values())).weight.detach().float()
    more: dict[str, Any] = {} if progress is None else {"progress": progress}
    if isinstance(scheme, EmbeddingByField):  # it fits each field by itself
        scheme.fit_settings = {"visits": visits, "seed": seed, **more}
    fit = fit_to_rows(rows, scheme, visits=visits, seed=seed, **more)
    scheme.zero_grad()  # so that the caller does not find the gradients of the last step
    return fit


def _report(places: Places, scheme: EmbeddingScheme, fit: Distillation | None, *, seconds: float) -> Replacement:
    table = next(iter(places.values()))
    rows, dim = table.weight.shape
    return Replacement(
        names=tuple(places),
        rows=rows,
        embedding_dim=dim,
        bytes_before=table.weight.numel() * table.weight.element_size(),
        bytes_after=scheme.num_bytes,
        parameters_before=table.weight.numel(),
        parameters_after=scheme.num_parameters,
        unexplained=fit.unexplained if fit else None,
        mean_cosine=fit.mean_cosine if fit else None,
        seconds=seconds,
    )


def put_in_place(model: nn.Module, places: Places, scheme: EmbeddingScheme) -> None:
    """Put a new module at each of the names.

    Names that had one module get one module again. Modules that shared a table share the scheme.
    """
    drop_ins: dict[int, DropIn] = {}
    for name, table in places.items():
        if id(table) not in drop_ins:
            drop_ins[id(table)] = drop_in_for(table, scheme)
        put_at(model, name, drop_ins[id(table)])
    scheme.requires_grad_(next(iter(places.values())).weight.requires_grad)
