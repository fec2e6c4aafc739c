"""What does training cost beside the arithmetic, and beside a table? A step, an epoch of MovieLens-1M, an evaluation.

The last two need the data, in $TABLELESS_DATA or ../shared/data. One thread; two for the evaluation.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measuring import Row, Spread, at_most, figure, not_measured, on_threads, show, time_alternately
from tableless import DeepHashEmbedding
from tableless.data.config import DataConfig
from tableless.data.loading import load_split
from tableless.data.sources import DATASETS
from tableless.data.splits import Split
from tableless.kernels.resources import keeping_freed_memory
from tableless.recommender.evaluation import measure_scorer
from tableless.recommender.models import Recommender
from tableless.recommender.runs import ModelConfig, build_model
from tableless.recommender.scoring import model_scores
from tableless.recommender.stage_settings import fine_tuning
from tableless.recommender.training import TrainConfig
from tableless.recommender.training_loop import train_model
from tableless.serving.timing import bare_products

DATA = Path(os.environ.get("TABLELESS_DATA") or Path(__file__).parents[2] / "shared" / "data")
MOVIELENS = "movielens-1m"
STEP_TARGET, EPOCH_TARGET = 1.6, 3.0
EVALUATION_TARGETS = {"gmf": 2.0, "mlp": 20.0}  # seconds
NETWORKS: dict[str, tuple[int, dict[str, Any]]] = {  # vocabulary, options
    "MovieLens-1M users at 1/4": (6_040, {}),
    "the same with batch norm": (6_040, {"normalization": "batch"}),
    "MovieLens-20M users at 1/4 (experts)": (138_493, {}),
}


def measure(
    *,
    batch_sizes: tuple[int, ...] = (2_048, 16_384),
    steps: int = 4,
    repetitions: int = 9,
    epochs: int = 2,
    evaluations: int = 2,
    data: str | None = None,
) -> list[Row]:
    """`data` is MovieLens-1M, or, to try the benchmark out, another name that `load_split` knows."""
    rows = [
        _step(name, vocab_size, options, batch_size, steps, repetitions)
        for name, (vocab_size, options) in NETWORKS.items()
        for batch_size in batch_sizes
    ]
    name = data or MOVIELENS
    if data is None and not any(list(DATA.glob(file)) for file in DATASETS[MOVIELENS].files):
        return rows + _without_data(name)
    split = load_split(DataConfig(data=name, data_dir=str(DATA)))
    return [*rows, *_epoch(name, split, epochs), *_evaluation(name, split, evaluations)]


def _step(name: str, vocab_size: int, options: dict[str, Any], batch_size: int, steps: int, repetitions: int) -> Row:
    """Forward and backward of a whole scheme, hashing and all, against those of its linear layers alone."""
    scheme = DeepHashEmbedding.from_budget("1/4 parameters", embedding_dim=32, vocab_size=vocab_size, **options).train()
    ids = torch.randint(2**62, (batch_size,), generator=torch.Generator().manual_seed(0))
    codes = scheme.encoder(ids)
    if scheme.num_experts > 1:  # the products of rows that happen to be shared out evenly
        share = math.ceil(batch_size / scheme.num_experts)
        codes = codes.repeat(2, 1)[: scheme.num_experts * share].view(scheme.num_experts, share, -1)
    layers = bare_products(scheme.decoder)
    with on_threads(1), keeping_freed_memory():
        seconds = time_alternately(
            {"scheme": _steps(scheme, ids, steps), "layers": _steps(layers, codes, steps)}, repetitions=repetitions
        )
    ratios = Spread.of_ratios(seconds["scheme"], seconds["layers"])
    size = f"width {scheme.width}" + (f", {scheme.num_experts} experts" if scheme.num_experts > 1 else "")
    question = f"training step, {name}, {size}, batch {batch_size:,}, against its bare products"
    return at_most(question, ratios, STEP_TARGET, " ×")


def _steps(module: nn.Module, inputs: Tensor, number: int) -> Callable[[], None]:
    with torch.no_grad():
        gradient = torch.ones_like(module(inputs))

    def task() -> None:
        for _ in range(number):
            module.zero_grad()
            module(inputs).backward(gradient)

    return task


def _epoch(name: str, split: Split, repetitions: int) -> list[Row]:
    """Epochs of both, in turn; the first of each is not counted. What validation takes is not in them.

    The table has the default batch. The network has the one that the fast recipe takes by default, and the table's.
    """
    default = TrainConfig(epochs=1)
    network = _model(split)
    large = fine_tuning(default, split, network)
    ways = {
        "full": (_model(split, scheme="full"), default),
        "dhe": (network, large),
        "dhe, the table's batch": (_model(split), default),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    with on_threads(1):
        for _ in range(1 + repetitions):
            for way, (model, config) in ways.items():
                seconds[way].append(train_model(model, split, config)[0].seconds)
    full, dhe, small = (values[1:] for values in seconds.values())
    of_recipe = f"{_training(name)}, each with its default batch ({large.batch_size:,} and {default.batch_size:,})"
    of_table = f"{_training(name)}, both with batches of {default.batch_size:,}"
    return [
        at_most(of_recipe, Spread.of_ratios(dhe, full), EPOCH_TARGET, " ×"),
        at_most(of_table, Spread.of_ratios(small, full), EPOCH_TARGET, " ×"),
        figure("an epoch of the full table", Spread.of(full), " s"),
    ]


def _evaluation(name: str, split: Split, repetitions: int) -> list[Row]:
    """Every user against every item, vectors computed anew."""
    rows = []
    for backbone, target in EVALUATION_TARGETS.items():
        if (os.cpu_count() or 1) < 2:
            rows.append(not_measured(_evaluating(name, backbone), "there is one core", f"≤ {target:g} s"))
            continue
        model = _model(split, backbone=backbone)
        with on_threads(2):
            measure_scorer(model_scores(model, split), split, max_pairs=1e5)  # a sample, so that all is compiled
            seconds = [_seconds_of_evaluation(model, split) for _ in range(repetitions)]
        rows.append(at_most(_evaluating(name, backbone), Spread.of(seconds), target, " s"))
    return rows


def _seconds_of_evaluation(model: Recommender, split: Split) -> float:
    start = time.perf_counter()
    metrics = measure_scorer(model_scores(model, split), split, max_pairs=1e15)
    assert metrics.num_evaluated == metrics.num_held_out, "an exact evaluation leaves nobody out"
    return time.perf_counter() - start


def _model(split: Split, *, scheme: str = "dhe", backbone: str = "gmf") -> Recommender:
    return build_model(ModelConfig(scheme=scheme, budget="1/4 parameters", backbone=backbone), split, seed=0)


def _training(name: str) -> str:
    return f"an epoch of {name}, GMF, dhe at 1/4, against the full table"


def _evaluating(name: str, backbone: str) -> str:
    return f"exact test AUC of {name}, {backbone.upper()}, dhe at 1/4, two threads"


def _without_data(name: str) -> list[Row]:
    why = f"{name} is neither in $TABLELESS_DATA nor in ../shared/data; set TABLELESS_DATA to the folder that has it"
    return [
        not_measured(_training(name), why, f"≤ {EPOCH_TARGET:g} ×"),
        *(not_measured(_evaluating(name, each), why, f"≤ {target:g} s") for each, target in EVALUATION_TARGETS.items()),
    ]


if __name__ == "__main__":
    show(measure())
