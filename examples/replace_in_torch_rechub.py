"""A trained DeepFM of torch-rechub gets its user and movie tables replaced: what does that cost in AUC?

    pip install 'tableless[data,libraries]'
    TQDM_DISABLE=1 python -m examples.replace_in_torch_rechub

MovieLens-1M: will the user give this movie four stars or more? Of each user's ratings the last tenth is the test, the
tenth before it validation. For each seed the model is trained, and then, for each budget, copies of it are measured:
with the tables replaced (`distilled`, which needs no data), after two epochs of learning to answer as the model did
before (`tuned`, by `tableless.tune`: inputs without labels), and after two epochs more of the library's own training
(`fine-tuned`, with labels). `fresh` has schemes in place that were fitted to nothing: what the rest of the model knows
by itself.
"""

from __future__ import annotations

import argparse
import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any

import polars as pl
import torch
from torch import Tensor, nn
from torch_rechub.basic.features import SparseFeature
from torch_rechub.models.ranking import DeepFM
from torch_rechub.trainers import CTRTrainer

from tableless import replace_embeddings, tune
from tableless.data.loading import find_data

# Found on validation data. The network fits the table closely, and larger steps lead away from there. A large batch
# has hardly more distinct ids than a small one, and each distinct id is computed once.
TUNING_EPOCHS, TUNING_BATCH_SIZE, TUNING_LEARNING_RATE = 2, 16_384, 1e-4


@dataclass(frozen=True)
class Examples:
    """Stands for a data loader of torch-rechub: batches of features by name and labels, in a new order each time."""

    features: Mapping[str, Tensor]  # each int64 [n]
    labels: Tensor  # float32 [n]
    batch_size: int = 2048

    def __len__(self) -> int:
        return math.ceil(len(self.labels) / self.batch_size)

    def __iter__(self) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        for rows in torch.split(torch.randperm(len(self.labels)), self.batch_size):
            yield {name: values[rows] for name, values in self.features.items()}, self.labels[rows]


@dataclass(frozen=True)
class Split:
    """Examples for three purposes, and how many different values each feature has."""

    train: Examples
    validation: Examples
    test: Examples
    vocab_sizes: Mapping[str, int]


@dataclass(frozen=True)
class Outcome:
    """The result of one model."""

    bytes: int  # of the large tables, or of what is in their place
    auc: float  # on the test


def main() -> None:
    """Train, replace, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="where MovieLens-1M is, or goes; else $TABLELESS_DATA, or the cache")
    parser.add_argument("--scheme", default="auto")
    parser.add_argument("--budgets", default="1/16,1/32")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    split = split_by_time(read_movielens(arguments.data_dir))
    results = []
    for seed in range(arguments.seeds):
        budgets = arguments.budgets.split(",")
        results.append(measure(split, budgets, scheme=arguments.scheme, min_rows=1_000, seed=seed))
        print(f"seed {seed}:", *(f"{name} {outcome.auc:.4f};" for name, outcome in results[-1].items()), flush=True)
    print("\n| tables | bytes of the tables | test AUC |\n| --- | --- | --- |")
    for name, outcome in results[0].items():
        aucs = [result[name].auc for result in results]
        spread = f" ± {stdev(aucs):.4f}" if len(aucs) > 1 else ""
        print(f"| {name} | {outcome.bytes:,} | {mean(aucs):.4f}{spread} |")


def measure(
    split: Split,
    budgets: Sequence[str],
    *,
    scheme: str,
    min_rows: int,
    embed_dim: int = 32,
    epochs: int = 7,
    seed: int = 0,
) -> dict[str, Outcome]:
    """The results of the trained model, and of the model replaced at each budget."""
    torch.manual_seed(seed)
    model = build_model(split, embed_dim=embed_dim)
    train(model, split.train, split.validation, epochs=epochs)
    outcomes: dict[str, Outcome] = {}
    own: dict[str, Any] = {"scheme": scheme, "min_rows": min_rows, "seed": seed}
    for budget in budgets:
        fresh, fitted = copy.deepcopy(model), copy.deepcopy(model)
        replace_embeddings(fresh, budget, distil=False, **own)
        tables = replace_embeddings(fitted, budget, **own)
        print(tables, flush=True)
        before, after = sum(each.bytes_before for each in tables), sum(each.bytes_after for each in tables)
        outcomes.setdefault("as trained", Outcome(before, auc(model, split.test)))
        outcomes[f"{budget}, fresh"] = Outcome(after, auc(fresh, split.test))
        outcomes[f"{budget}, distilled"] = Outcome(after, auc(fitted, split.test))
        tuned = copy.deepcopy(fitted)
        tune(
            tuned,
            model,
            split.train,
            epochs=TUNING_EPOCHS,
            metric=lambda student: auc(student, split.validation),
            call=lambda student, batch: student(batch[0]),  # without the labels
        )
        outcomes[f"{budget}, tuned"] = Outcome(after, auc(tuned, split.test))
        examples = replace(split.train, batch_size=TUNING_BATCH_SIZE)
        train(fitted, examples, split.validation, epochs=TUNING_EPOCHS, learning_rate=TUNING_LEARNING_RATE)
        outcomes[f"{budget}, fine-tuned"] = Outcome(after, auc(fitted, split.test))
    return outcomes


def build_model(split: Split, *, embed_dim: int) -> DeepFM:
    """The library's own model, all features in both of its parts."""
    features = [SparseFeature(name, vocab_size=size, embed_dim=embed_dim) for name, size in split.vocab_sizes.items()]
    return DeepFM(features, features, mlp_params={"dims": [64, 32], "dropout": 0.2, "activation": "relu"})


def train(
    model: nn.Module, examples: Examples, validation: Examples, *, epochs: int, learning_rate: float = 1e-3
) -> None:
    """Train with the library's trainer. Keeps the weights that are best on validation, or those of the start."""
    trainer = CTRTrainer(model, optimizer_params={"lr": learning_rate, "weight_decay": 1e-5})
    best, kept = trainer.evaluate(model, validation), copy.deepcopy(model.state_dict())
    for _ in range(epochs):
        trainer.train_one_epoch(examples)
        reached = trainer.evaluate(model, validation)
        if reached > best:
            best, kept = reached, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)


def auc(model: nn.Module, examples: Examples) -> float:
    """AUC as the library measures it."""
    return float(CTRTrainer(model).evaluate(model, examples))


def read_movielens(data_dir: str | None = None) -> pl.DataFrame:
    """Columns user, movie, weekday and hour (all numbered from 0), label and time."""
    (file,) = find_data("movielens-1m", data_dir=data_dir)
    names = ["user_id", "item_id", "rating", "timestamp"]
    if file.suffix == ".parquet":
        ratings = pl.read_parquet(file, columns=names)
    else:  # its fields are separated by two colons
        ratings = pl.read_csv(file, separator=":", has_header=False, columns=[0, 2, 4, 6], new_columns=names)
    moment = pl.from_epoch("timestamp")
    return ratings.select(
        user=pl.col("user_id").rank("dense").cast(pl.Int64) - 1,
        movie=pl.col("item_id").rank("dense").cast(pl.Int64) - 1,
        weekday=moment.dt.weekday().cast(pl.Int64) - 1,
        hour=moment.dt.hour().cast(pl.Int64),
        label=(pl.col("rating") >= 4).cast(pl.Float32),
        time=pl.col("timestamp"),
    )


def split_by_time(frame: pl.DataFrame) -> Split:
    """The last tenth of each user's examples is the test, the tenth before it validation."""
    names = [name for name in frame.columns if name not in ("label", "time")]
    position = pl.col("time").rank("ordinal").over("user") / pl.len().over("user")  # in (0, 1]

    def examples(after: float, until: float) -> Examples:
        part = frame.filter((position > after) & (position <= until))
        features = {name: torch.from_numpy(part[name].to_numpy().copy()) for name in names}
        return Examples(features, torch.from_numpy(part["label"].to_numpy().copy()))

    sizes = {name: int(frame[name].to_numpy().max()) + 1 for name in names}
    return Split(examples(0.0, 0.8), examples(0.8, 0.9), examples(0.9, 1.0), sizes)


if __name__ == "__main__":
    main()
