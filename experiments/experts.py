"""Experts: accuracy against arithmetic per id, when a hash of the id picks one of several smaller networks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from tableless.embedding.decoders import EmbeddingNetwork
from tableless.recommender.lines import Line
from tableless.recommender.models import Recommender
from tableless.recommender.runs import DataConfig, ModelConfig, build_model

from .finished import NOT_RUN, Finished
from .running import Experiment, Settings, main
from .training_runs import BOOKS, settings, split_of
from .training_runs import perform as train_and_measure
from .writing import new_picture, save_picture, table

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
    return [settings(BOOKS, "dhe", BUDGET, seed, options=options) for seed in seeds]


EXPERIMENT = Experiment("experts", list(chain.from_iterable(_runs(number) for number in NUM_EXPERTS)), perform)


def section(lines: Sequence[Line]) -> str:
    """AUC, arithmetic and time of training."""
    finished = Finished(lines)
    rows = [
        [
            CHOSEN if number is None else str(number),
            *(
                finished.cell(_runs(number)[:1], f"{side}_{what}", scale=1, digits=0)
                for what in ("experts", "products")
                for side in ("user", "item")
            ),
            finished.cell(_runs(number)),
            finished.cell(_runs(number), "seconds", scale=1, digits=0),
        ]
        for number in NUM_EXPERTS
    ]
    headings = ["experts", "of users", "of items", "multiply–adds, user", "multiply–adds, item", "AUC, %", "s"]
    return "\n\n".join(
        [
            f"Not in the paper. Book-Crossing 5-core, GMF, {int(BUDGET):,} parameters each, whatever the number of "
            "experts; seconds of training on one core, the table learned from included.",
            table(headings, rows),
            _picture(finished),
        ]
    )


def _picture(finished: Finished) -> str:
    if not any(finished.values(_runs(number)) for number in NUM_EXPERTS):
        return NOT_RUN
    figure = new_picture()
    axes = figure.subplots()
    for number in NUM_EXPERTS:
        products, auc = finished.mean(_runs(number), "item_products"), finished.mean(_runs(number))
        if products is not None and auc is not None:
            axes.scatter(products, auc, color="C0")
            axes.annotate(f" {CHOSEN if number is None else number}", (products, auc))
    axes.set(xscale="log", xlabel="multiply–adds for an item's embedding", ylabel="test AUC")
    axes.spines[["top", "right"]].set_visible(False)
    return save_picture(figure, "experts", says="AUC against arithmetic per id")


if __name__ == "__main__":
    main(EXPERIMENT)
