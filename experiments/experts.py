"""Experts: accuracy against arithmetic per id, when a hash of the id picks one of several smaller networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tableless.data.config import DataConfig
from tableless.embedding.decoders import EmbeddingNetwork
from tableless.files.whole import Line
from tableless.recommender.models import Recommender
from tableless.recommender.runs import ModelConfig, build_model

from .finished import SHOWN, Finished
from .running import Experiment, Settings, main
from .training_runs import BOOKS, settings, split_of
from .training_runs import perform as train_and_measure
from .writing import markers, new_picture, paragraphs, save_picture, table

SEEDS = range(2)
BUDGET = "2000000"  # a little more than the full table: where one network is slow, and experts are for
CHOSEN = "chosen by from_budget"
NUM_EXPERTS: list[int | None] = [None, 4, 1]  # quick ones first: arithmetic grows as experts get fewer


def perform(settings: Settings) -> dict[str, Any]:
    """Train and measure, and count the products behind an embedding."""
    split = split_of(DataConfig(**settings["data"]))
    model = build_model(ModelConfig(**settings["model"]), split, seed=settings["train"]["seed"])
    return train_and_measure(settings) | _arithmetic(model)


def _arithmetic(model: Recommender) -> dict[str, Any]:
    counts = {}
    for side, scheme in (("user", model.users), ("item", model.items)):
        network = next(module for module in scheme.modules() if isinstance(module, EmbeddingNetwork))
        counts[f"{side}_experts"] = network.num_experts
        counts[f"{side}_products"] = products_per_id(network)
    return counts


def products_per_id(network: EmbeddingNetwork) -> int:
    """Multiply–adds for one id: every weight of the matrices of one expert, once."""
    matrices = (
        weight for name, weight in network.named_parameters() if name.endswith(("linear.weight", "output.weight"))
    )
    return sum(matrix.numel() for matrix in matrices) // network.num_experts


def _runs(num_experts: int | None) -> list[Settings]:
    options = {} if num_experts is None else {"num_experts": num_experts}
    seeds = SEEDS[:1] if num_experts == 1 else SEEDS  # one network takes twenty minutes
    return [settings(BOOKS, "dhe", BUDGET, seed, recipe="fast", options=options) for seed in seeds]


EXPERIMENT = Experiment("experts", [run for number in NUM_EXPERTS for run in _runs(number)], perform)


def section(lines: Sequence[Line]) -> str:
    """AUC, arithmetic and time of training."""
    finished = Finished(lines)
    rows = [
        [
            CHOSEN if number is None else str(number),
            *(
                finished.plain(_runs(number)[:1], f"{side}_{what}")
                for what in ("experts", "products")
                for side in ("user", "item")
            ),
            *finished.cells(_runs(number)),
            finished.plain(_runs(number), "seconds"),
        ]
        for number in NUM_EXPERTS
    ]
    headings = ["experts", "of users", "of items", "multiply–adds, user", "multiply–adds, item", *SHOWN.values(), "s"]
    return paragraphs(
        [
            f"Not in the paper. Book-Crossing 5-core, GMF, {int(BUDGET):,} parameters each, whatever the number of "
            "experts, all by the fast recipe; seconds of training on one core, the table learned from included.",
            table(headings, rows),
            finished.measured_on(EXPERIMENT.runs),
            _picture(finished),
        ]
    )


def _picture(finished: Finished) -> str:
    if not finished.values(EXPERIMENT.runs):
        return ""
    figure = new_picture(width=11)
    for axes, (metric, label) in zip(figure.subplots(1, len(SHOWN)), SHOWN.items(), strict=True):
        for number in NUM_EXPERTS:
            products, mean = finished.mean(_runs(number), "item_products"), finished.mean(_runs(number), metric)
            if products is not None and mean is not None:
                markers(axes, finished, [(products, _runs(number))], metric)
                axes.annotate(f" {CHOSEN if number is None else number}", (products, 100 * mean))
        axes.set(xscale="log", xlabel="multiply–adds for an item's embedding", ylabel=f"test {label}")
        axes.spines[["top", "right"]].set_visible(False)
    return save_picture(figure, "experts", says="Accuracy against arithmetic per id")


if __name__ == "__main__":
    main(EXPERIMENT)
