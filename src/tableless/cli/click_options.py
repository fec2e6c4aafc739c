"""Click models on the command line: `tableless train --columns …`, and what the other commands do with their runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..data.config import DataConfig
from ..recommender.runs import ModelConfig
from ..recommender.training import TrainConfig
from .options import was_typed

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class ClickOptions:
    """What only click models have."""

    columns: str | None = field(
        default=None,
        metadata={
            "help": "Train a click model on these columns: user,item,device. With what they are: genres:| (lists by a "
            "separator), zip:string, price:number, age:buckets."
        },
    )
    label: str | None = field(
        default=None,
        metadata={
            "help": "Column of the answers, 0 or 1; with --min-rating a rating. Without it, items that were not chosen "
            "are drawn (--item-col)."
        },
    )
    item_columns: str | None = field(
        default=None,
        metadata={"help": "Without --label: columns that an item brings with it, such as author,publisher."},
    )
    column_schemes: str | None = field(
        default=None,
        metadata={
            "help": "Columns with schemes of their own, with bytes if they shall have others: user=coded,item=dhe:64KB."
        },
    )


_ONLY_FOR_CLICKS = ("label", "item_columns", "column_schemes")
_USED = frozenset(
    {
        "data", "columns", *_ONLY_FOR_CLICKS, "scheme", "budget", "backbone", "embedding_dim", "out", "device",
        "as_json",
        "epochs", "batch_size", "num_negatives", "learning_rate", "weight_decay", "patience", "recipe", "seed",
        "data_dir", "item_col", "time_col", "drop_missing", "min_rating", "date_format",
    }
)  # fmt: skip


def train_click_run(
    context: typer.Context,
    data: DataConfig,
    model: ModelConfig,
    training: TrainConfig,
    clicks: ClickOptions,
    *,
    out: Path | None,
    device: str,
    as_json: bool,
) -> bool:
    """Train a click model, measure it, and print what came out. False: none is meant, since no columns are named."""
    from ..recommender.clicks.click_runs import require_recommender, train_and_measure_clicks
    from ..recommender.clicks.sizing import ClickModelConfig

    if clicks.columns is None:
        require_recommender(model.backbone, model.scheme)
        if typed := [f"--{name.replace('_', '-')}" for name in _ONLY_FOR_CLICKS if was_typed(context, name)]:
            raise ValueError(f"{', '.join(typed)} is for a click model; name its columns: --columns user,item,device")
        return False
    from ..data.clicks.columns import parse_columns
    from ..data.clicks.reading import ClickConfig, read_clicks
    from ..data.clicks.split import split_clicks
    from ..recommender.clicks.click_training import ClickWatchers
    from .output import ProgressBar

    _refuse_what_clicks_ignore(context)
    names = tuple(filter(None, (name.strip() for name in (clicks.item_columns or "").split(","))))
    read = ClickConfig(
        data.data,
        parse_columns(clicks.columns),
        clicks.label,
        data.item_col,
        names,
        data.time_col,
        data.row_rules,
        data.data_dir,
    )
    backbone = model.backbone if was_typed(context, "backbone") else ClickModelConfig.backbone
    own = ClickModelConfig(backbone, model.scheme, model.budget, model.embedding_dim, _by_column(clicks.column_schemes))
    with ProgressBar(quiet=as_json) as progress:
        split = split_clicks(read_clicks(read, report=progress.tell), seed=training.seed)
        rows = (len(part) for part in (split.train, split.validation, split.test))
        progress.tell("{:,} rows to train on, {:,} for validation, {:,} for test".format(*rows))
        watchers = ClickWatchers(progress.tell, progress.on_batch, lambda report: progress.tell(str(report)))
        _, results = train_and_measure_clicks(read, own, training, split, out=out, device=device, watchers=watchers)
    if as_json:
        print(json.dumps(results | ({"out": str(out)} if out else {})))
        return True
    print_click_results(results)
    if out is not None:
        print(f"The model is in {out}. Try: tableless serve {out}")
    return True


def evaluate_click_model(
    context: typer.Context, run: Path, *, data: str | None, test: str | None, data_dir: Path | None, as_json: bool
) -> None:
    """Measure a click model again."""
    from ..recommender.clicks.click_runs import evaluate_click_run

    _refuse_typed(context, {"run", "data", "test", "data_dir", "as_json"}, "measuring a click model")
    folder = None if data_dir is None else str(data_dir)
    results = evaluate_click_run(run, data=data, test=test, data_dir=folder)
    if as_json:
        print(json.dumps(results))
    else:
        print_click_results(results)


def print_click_results(results: Mapping[str, Any]) -> None:
    """The figures of a click model as a table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    floor = results.get("popularity", {})
    table.add_row("test AUC", _with_error(results, "auc"))
    if "auc" in floor:
        table.add_row(f"  click rates of {floor['column']} alone", _with_error(floor, "auc"))
    table.add_row("test log loss", _with_error(results, "log_loss"))
    if "base_rate_log_loss" in floor:
        table.add_row("  of the base rate alone", f"{floor['base_rate_log_loss']:.4f}")
    if "validation" in results:
        table.add_row("validation AUC", _with_error(results["validation"], "auc"))
        table.add_row("validation log loss", _with_error(results["validation"], "log_loss"))
    for name, text in (("bytes", "bytes of all columns"), ("table_bytes", "  full tables would take")):
        if name in results:
            table.add_row(text, f"{results[name]:,}")
    if "backbone_parameters" in results:
        table.add_row("parameters of the backbone", f"{results['backbone_parameters']:,}")
    if "seconds" in results:
        table.add_row("seconds", f"{results['seconds']:,}")
    Console().print(table)
    print(f"Measured on {results['evaluated']:,} rows; ± is the standard error over rows.")
    if results.get("capped"):
        print("Training ended at its limit of epochs, and not by itself: more may be better (--epochs).")
    if results.get("warning"):
        print(f"Warning: {results['warning']}")


def _with_error(results: Mapping[str, Any], name: str) -> str:
    return f"{results[name]:.4f} ± {results[f'{name}_se']:.4f}"


def _by_column(text: str | None) -> dict[str, str]:
    """`user=coded,item=dhe:64KB` as a mapping."""
    found: dict[str, str] = {}
    for part in filter(None, (text or "").split(",")):
        name, equals, scheme = part.strip().partition("=")
        if not (name and equals and scheme):
            raise ValueError(
                f"--column-schemes has {part!r}; write a column and its scheme, as in 'user=coded,item=dhe:64KB'"
            )
        found[name] = scheme
    return found


def _refuse_what_clicks_ignore(context: typer.Context) -> None:
    _refuse_typed(context, _USED, "a click model (--columns)")


def _refuse_typed(context: typer.Context, used: frozenset[str] | set[str], what: str) -> None:
    """Refuse options that mean nothing here, where they were typed. The list holds what *is* used."""
    typed = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in used and was_typed(context, parameter.name)
    ]
    if typed:
        raise ValueError(f"{what} has no use for {', '.join(typed)}; leave it out")
