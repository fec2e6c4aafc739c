"""Few bits: the same network with weights in float32 and in int8, trained by the same recipe, pair by pair."""

from __future__ import annotations

from collections.abc import Sequence

from tableless.data.config import DataConfig
from tableless.files.whole import Line
from tableless.recommender.training import TrainConfig

from .finished import NOT_RUN, SHOWN, Finished
from .running import Experiment, Settings, main
from .training_runs import BOOKS, MOVIELENS, name_of_data, perform, settings
from .writing import paragraphs, table

SEEDS = range(3)
DATA: list[DataConfig] = [MOVIELENS, BOOKS]
BITS = {32: "float32", 8: "int8"}


def runs_of(data: DataConfig, bits: int) -> list[Settings]:
    """A quarter of the table's parameters with weights of so many bits, by seed."""
    options = {} if bits == 32 else {"weight_bits": bits}
    training = TrainConfig(loss="bce")  # as when the first pairs were run; what is compared is the rounding
    return [settings(data, "dhe", "1/4", seed, recipe="fast", options=options, training=training) for seed in SEEDS]


EXPERIMENT = Experiment("few_bits", [run for data in DATA for bits in BITS for run in runs_of(data, bits)], perform)


def section(lines: Sequence[Line]) -> str:
    """Accuracy and bytes of both, and what rounding costs, on test and on validation data."""
    finished = Finished(lines)
    rows, costs = [], []
    for data in DATA:
        for bits, name in BITS.items():
            own = runs_of(data, bits)
            size = finished.plain(own, "bytes_per_id", digits=1)
            rows.append([name_of_data(data.settings()), name, size, *finished.cells(own)])
        for metric, label in SHOWN.items():
            for part, where in (("", "test"), ("validation.", "validation")):
                cost = finished.difference(runs_of(data, 8), runs_of(data, 32), part + metric)
                costs.append(f"{name_of_data(data.settings())}, {where} {label} {cost or NOT_RUN}")
    return paragraphs(
        [
            "`dhe` with as many weights as a quarter of the table's parameters, GMF, tables by bce. Weights of int8 "
            "are trained as float32, and rounded by parts at the end.",
            table(["data", "weights", "bytes per id", *SHOWN.values()], rows),
            f"int8 less float32: {'; '.join(costs)}. {finished.measured_on(EXPERIMENT.runs)}".strip(),
        ]
    )


if __name__ == "__main__":
    main(EXPERIMENT)
