"""The figures of one model, for people: what `train` and `evaluate` print without --json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..recommender.evaluation import METRICS
from .typed_names import as_typed

if TYPE_CHECKING:
    from rich.table import Table

_SIZES = {
    "num_parameters": "parameters",
    "embedding_parameters": "  of the embeddings",
    "epochs": "epochs of the last stage",
    "seconds": "seconds",
}


def print_results(results: Mapping[str, Any]) -> None:
    """The measured results as a table, and what they rest on."""
    Console().print(_render_results(results))
    for remark in _remarks(results):
        print(remark)


def _render_results(results: Mapping[str, Any]) -> Table:
    """The figures of one model."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, metric in METRICS.items():
        if name in results:
            table.add_row(f"test {metric.label}", _with_error(results, name))
            if name in results.get("popularity", {}):
                table.add_row("  popularity alone", _with_error(results["popularity"], name))
            if name in results.get("best_possible", {}):
                table.add_row("  best possible in this world", _with_error(results["best_possible"], name))
    for name, metric in METRICS.items():
        if name in results.get("validation", {}):
            table.add_row(f"validation {metric.label}", _with_error(results["validation"], name))
    for group, auc in results.get("auc_by_group", {}).items():
        table.add_row(f"test AUC, {group}{'' if 'new' in group else ' items'}", f"{auc:.4f}")
    for name, label in _SIZES.items():
        if results.get(name) is not None:
            table.add_row(label, f"{results[name]:,}")
    return table


def _with_error(results: Mapping[str, Any], name: str) -> str:
    """A mean and its standard error over users, where there is one."""
    error = results.get(f"{name}_se")
    return f"{results[name]:.4f}" + ("" if error is None else f" ± {error:.4f}")


def _remarks(results: Mapping[str, Any]) -> Iterator[str]:
    """What the figures alone do not say."""
    if "evaluated" in results:
        users = f"{results['evaluated']:,} of {results['held_out']:,} users with held-out actions"
        yield f"Measured on {users}; ± is the standard error over users."
    if results.get("auc_items"):
        yield f"The AUC is against {results['auc_items']:,} items drawn for each user, the rest over all items."
    if results.get("unanswered"):
        yield (
            f"{results['unanswered']:,} test actions have a user or an item that was not in training: this scheme "
            "can't answer for them (one that is open to new ids, such as dhe, can)."
        )
    if "best_epoch" in results and "validation" in results:
        yield _kept(results)
    if results.get("capped"):
        yield "Training ended at its limit of epochs, and not by itself: more may be better (--epochs)."
    if results.get("warning"):
        yield f"Warning: {as_typed(results['warning'])}"


def _kept(results: Mapping[str, Any]) -> str:
    """Which model was kept, and what its validation AUC was measured on."""
    best, validation = results["best_epoch"], results["validation"]
    kept = (
        "the fitted one, since no epoch of the last stage was better" if best is None else f"that of epoch {best + 1}"
    )
    users = f"{validation['evaluated']:,} of {validation['held_out']:,} users"
    return f"The model is {kept}. Its validation AUC is on {users}; the lines of epochs may be on fewer."
