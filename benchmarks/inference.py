"""How close is serving to the arithmetic?

1024 hashes, 5 hidden layers of 457, 32 dimensions: MovieLens-20M at 1/4. One thread, unless a row says otherwise.
"Bare layers" are the network's `nn.Linear` modules on codes that were made beforehand.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.measuring import (
    Row,
    Spread,
    at_least,
    at_most,
    figure,
    not_measured,
    on_threads,
    show,
    time_alternately,
)
from tableless import DeepHashEmbedding
from tableless.embedding.inference.int8 import is_supported
from tableless.embedding.inference.network import CHUNK
from tableless.serving import FastEmbedding
from tableless.serving.timing import bare_products, zipf_ids

FP32_TARGET, INT8_TARGET, HIT_TARGET, ZIPF_TARGET, THREADS_TARGET = 1.15, 0.45, 5.0, 1.1, 1.8
BATCH_SIZES = (100, 4096)


def measure(
    *, width: int = 457, num_hashes: int = 1024, num_ids: int = 8192, vocab_size: int = 1_000_000, repetitions: int = 9
) -> list[Row]:
    """`num_ids` are looked up in each repetition, in batches; hits, being so much faster, 25 times over."""
    scheme = DeepHashEmbedding(32, width=width, num_hashes=num_hashes).eval()
    with torch.inference_mode():
        return [
            *_against_layers(scheme, num_ids, repetitions),
            *_products_of_bytes(width, repetitions),
            *_hits(scheme, num_ids, vocab_size // 100, repetitions),
            *_zipf(scheme, num_ids, vocab_size, repetitions),
            *_threads(scheme, num_ids, repetitions),
        ]


def _against_layers(scheme: DeepHashEmbedding, num_ids: int, repetitions: int) -> list[Row]:
    """fp32 and int8 against the bare layers."""
    layers, ids = bare_products(scheme.decoder), _random_ids(num_ids)
    ways: dict[str, nn.Module] = {"fp32": FastEmbedding(scheme)}
    if is_supported():
        ways["int8"] = FastEmbedding(scheme, precision="int8")
    rows = []
    for batch_size in BATCH_SIZES:
        batches = torch.split(ids, batch_size)
        tasks = {"layers": _each(layers, [scheme.encoder(batch) for batch in batches])}
        tasks |= {name: _each(way, batches) for name, way in ways.items()}
        with on_threads(1):
            seconds = time_alternately(tasks, repetitions=repetitions)
        for name, target in (("fp32", FP32_TARGET), ("int8", INT8_TARGET)):
            question = f"{name}, batch {batch_size:,}, against the bare fp32 layers"
            if name not in seconds:
                rows.append(not_measured(question, "this CPU has no VNNI", f"≤ {target} ×"))
                continue
            rows.append(at_most(question, Spread.of_ratios(seconds[name], seconds["layers"]), target, " ×"))
        for name, values in seconds.items():
            of = Spread.of(value / num_ids * 1e6 for value in values)
            rows.append(figure(f"{name}, batch {batch_size:,}", of, " µs per id"))
    return rows


def _products_of_bytes(width: int, repetitions: int) -> list[Row]:
    """One layer in 8-bit integers against float32, by torch's own products: why int8 needs VNNI (docs/tried.md)."""
    generator, rows = torch.Generator().manual_seed(2), []
    weight = torch.randint(-127, 128, (width, width), dtype=torch.int8, generator=generator)
    packed, scales = torch.ops.onednn.qlinear_prepack(weight, None), (torch.ones(width), torch.zeros(width).long())
    for batch_size in (1, 100, CHUNK):
        inputs = torch.randint(0, 128, (batch_size, width), dtype=torch.uint8, generator=generator)
        operands = {"floats": (inputs.float(), weight.float().T.contiguous()), "bytes": (inputs.char(), weight.T)}
        tasks: dict[str, Callable[[], object]] = {
            "float32": partial(_often, partial(torch.mm, *operands["floats"])),
            "torch._int_mm": partial(_often, partial(torch._int_mm, *operands["bytes"])),
            "oneDNN": partial(
                _often,
                partial(
                    torch.ops.onednn.qlinear_pointwise,
                    *(inputs, 1.0, 0, packed, *scales, None, 1.0, 0, torch.float32, "none", [], ""),
                ),
            ),
        }
        with on_threads(1):
            seconds = time_alternately(tasks, repetitions=repetitions)
        for name in ("torch._int_mm", "oneDNN"):
            question = f"8-bit products of a layer, {width} × {width}, by {name}, batch {batch_size}, against float32"
            rows.append(figure(question, Spread.of_ratios(seconds[name], seconds["float32"]), " ×"))
    return rows


def _often(product: Callable[[], object]) -> None:
    for _ in range(20):
        product()


def _hits(scheme: DeepHashEmbedding, num_ids: int, num_hot: int, repetitions: int) -> list[Row]:
    """All ids hot, against a table that has as many rows."""
    table, hot = nn.Embedding(num_hot, scheme.embedding_dim), _random_ids(num_hot)
    places = torch.randint(num_hot, (25 * num_ids,), generator=torch.Generator().manual_seed(1))
    fast = FastEmbedding(scheme, hot_ids=hot)
    with on_threads(1):
        seconds = time_alternately(
            {"table": _each(table, torch.split(places, 100)), "hits": _each(fast, torch.split(hot[places], 100))},
            repetitions=repetitions,
        )
    question = "a hit among the hot ids, batch 100, against nn.Embedding"
    return [at_most(question, Spread.of_ratios(seconds["hits"], seconds["table"]), HIT_TARGET, " ×")]


def _zipf(scheme: DeepHashEmbedding, num_ids: int, vocab_size: int, repetitions: int) -> list[Row]:
    """The same traffic with the most frequent 1 % of ids kept and with none.

    Both compute an id that a batch repeats only once, so the miss rate is that of a batch's distinct ids: the one of
    all ids is lower, because it is the hot ids that repeat.
    """
    num_hot = vocab_size // 100
    ids = zipf_ids(num_ids, vocab_size)  # the lowest ids are the most frequent
    kept, none = FastEmbedding(scheme, hot_ids=torch.arange(num_hot)), FastEmbedding(scheme)
    rows = []
    for batch_size in BATCH_SIZES:
        batches = torch.split(ids, batch_size)
        distinct = [torch.unique(batch) for batch in batches]
        missed = sum(int((batch >= num_hot).sum()) for batch in distinct) / sum(len(batch) for batch in distinct)
        with on_threads(1):
            seconds = time_alternately(
                {"kept": _each(kept, batches), "none": _each(none, batches)}, repetitions=repetitions
            )
        ratios = Spread.of_ratios(seconds["kept"], [missed * value for value in seconds["none"]])
        question = (
            f"Zipf traffic, s = 1.1, {vocab_size:,} ids, 1 % hot, batch {batch_size:,}: against miss rate "
            f"({missed:.0%} of distinct ids, {float((ids >= num_hot).float().mean()):.0%} of all) × uncached time"
        )
        rows.append(at_most(question, ratios, ZIPF_TARGET, " ×"))
    return rows


def _threads(scheme: DeepHashEmbedding, num_ids: int, repetitions: int) -> list[Row]:
    """Two threads against one, in turn: two that share each batch, and two callers with batches of their own."""
    fast, ids = FastEmbedding(scheme), _random_ids(num_ids)
    rows = []
    for batch_size in BATCH_SIZES:
        question = f"throughput of two threads against one, fp32, batch {batch_size:,}, "
        questions = {"sharing": question + "each batch shared", "callers": question + "two callers"}
        if (os.cpu_count() or 1) < 2:
            rows += [not_measured(each, "there is one core", f"≥ {THREADS_TARGET} ×") for each in questions.values()]
            continue
        batches = torch.split(ids, batch_size)
        run = _each(fast, batches)
        tasks = {"one": _on(1, run), "sharing": _on(2, run), "callers": _on(1, _two_callers(fast, batches))}
        seconds = time_alternately(tasks, repetitions=repetitions)
        rows += [
            at_least(each, Spread.of_ratios(seconds["one"], seconds[way]), THREADS_TARGET, " ×")
            for way, each in questions.items()
        ]
    return rows


def _two_callers(look_up: nn.Module, batches: Sequence[Tensor]) -> Callable[[], None]:
    def task() -> None:
        with ThreadPoolExecutor(2) as callers:
            for done in [callers.submit(_each(look_up, batches[caller::2])) for caller in range(2)]:
                done.result()

    return task


def _random_ids(count: int) -> Tensor:
    return torch.randint(-(2**62), 2**62, (count,), generator=torch.Generator().manual_seed(0))


def _each(look_up: nn.Module, batches: Sequence[Tensor]) -> Callable[[], None]:
    def task() -> None:
        for batch in batches:
            look_up(batch)

    return task


def _on(threads: int, task: Callable[[], None]) -> Callable[[], None]:
    def on() -> None:
        with on_threads(threads):
            task()

    return on


if __name__ == "__main__":
    show(measure())
