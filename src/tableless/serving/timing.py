"""The paper's Table 8: how long a million lookups take, with a table and without, in batches of 100.

At the end, how the library measures time: tasks in turn within one run, their median and range, and the machine's name.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ..embedding.budget import BYTES_PER_PARAMETER, Budget
from ..embedding.decoders import EmbeddingNetwork
from ..embedding.deep_hash import PAPER_NETWORK, DeepHashEmbedding
from ..embedding.inference.int8 import is_supported
from ..embedding.scheme import EmbeddingScheme, seeded
from ..embedding.schemes import SCHEMES
from ..embedding.tables import FullEmbedding
from ..kernels.resources import on_threads
from .fast_embedding import FastEmbedding

MOVIELENS_20M = 138_493 + 27_278
"""Users and films. A quarter of the table's parameters is a network 1024 → 5 × 457 → 32, which all our timings use."""
PAPER_BUDGET = "1/4 parameters"
"""As in the paper, which counts parameters; the networks are in float32."""

FULL, PRODUCTS = "full", "nn.Linear layers alone"
HOT_SHARE, ZIPF = 0.01, 1.1
"""Of all ids, those that are kept for hot traffic, and the exponent of that traffic."""
_REPETITIONS = 10


@dataclass(frozen=True)
class Spread:
    """The median of some measurements, and the lowest and highest of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Of at least one measurement."""
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[0], ordered[-1])

    @classmethod
    def of_ratios(cls, values: Sequence[float], to: Sequence[float]) -> Spread:
        """Of two tasks timed in turn. Each ratio is taken within one repetition, when the machine was equally busy."""
        return cls.of(value / other for value, other in zip(values, to, strict=True))


@dataclass(frozen=True)
class LookupTime:
    """How long one way of looking up takes, and how large it is.

    A million lookups take as many seconds as one takes microseconds. `megabytes` is the size of all that an answer
    needs: weights, hash functions, and the map from ids to rows of a table. FastEmbedding also keeps the scheme itself,
    which is not counted.
    """

    name: str
    num_parameters: int
    megabytes: float
    seconds_per_million: Spread
    of_full: Spread  # relative to the full table's time
    of_products: Spread  # relative to the time of the published network's matrix products


@dataclass(frozen=True)
class LookupReport:
    """All ways of looking up, timed in turn."""

    machine: str
    vocab_size: int
    budget: str
    batch_size: int
    queries: int
    threads: int
    times: list[LookupTime] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # what could not be timed here, and why


def measure_lookups(
    *,
    vocab_size: int = MOVIELENS_20M,
    embedding_dim: int = 32,
    budget: Budget = PAPER_BUDGET,
    batch_size: int = 100,
    queries: int = 100_000,
    threads: int = 1,
    repetitions: int = _REPETITIONS,
    seed: int = 0,
) -> LookupReport:
    """Time lookups with every scheme of Table 8 and every way of serving `dhe`.

    `queries` ids are looked up in each way, in `repetitions` turns. The result is the time of a million. The ids are
    drawn uniformly, except for hot ids, whose traffic follows Zipf's law.
    """
    for name, value in (("vocab_size", vocab_size), ("batch_size", batch_size), ("repetitions", repetitions)):
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    if queries < batch_size * repetitions:
        raise ValueError(
            f"{queries} queries are too few; {repetitions} turns of a batch of {batch_size} need at least "
            f"{batch_size * repetitions}"
        )
    count = queries // (batch_size * repetitions) * batch_size
    candidates, left_out = _candidates(budget, embedding_dim, vocab_size, seed)
    with on_threads(threads), torch.inference_mode():
        uniform = torch.split(torch.randint(vocab_size, (count,), generator=seeded(seed)), batch_size)
        zipf = torch.split(zipf_ids(count, vocab_size, seed=seed), batch_size)
        tasks = {
            name: _each(candidate.look_up, zipf if candidate.is_hot else uniform)
            for name, candidate in candidates.items()
        }
        seconds = time_alternately(tasks, repetitions=repetitions)
        machine = describe_machine()
    times = [
        LookupTime(
            name=name,
            num_parameters=candidate.num_parameters,
            megabytes=candidate.megabytes,
            seconds_per_million=Spread.of(value * 1e6 / count for value in seconds[name]),
            of_full=Spread.of_ratios(seconds[name], seconds[FULL]),
            of_products=Spread.of_ratios(seconds[name], seconds[PRODUCTS]),
        )
        for name, candidate in candidates.items()
    ]
    return LookupReport(
        machine=machine,
        vocab_size=vocab_size,
        budget=str(budget),
        batch_size=batch_size,
        queries=count * repetitions,
        threads=threads,
        times=times,
        left_out=left_out,
    )


def bare_products(network: EmbeddingNetwork) -> nn.Sequential:
    """The linear layers of an equal-width network, and nothing else: the arithmetic that every way needs."""
    assert network.architecture == "equal-width", "other architectures do more than pass rows from layer to layer"
    return nn.Sequential(*(layer.get_submodule("linear") for layer in network.hidden), network.output)


def zipf_ids(count: int, vocab_size: int, *, exponent: float = ZIPF, seed: int = 0) -> Tensor:
    """Ids by Zipf's law: id r is drawn in proportion to (r + 1)^-exponent, so id 0 most often."""
    cumulative = np.cumsum(np.arange(1, vocab_size + 1, dtype=np.float64) ** -exponent)
    draws = np.random.default_rng(seed).random(count) * cumulative[-1]
    return torch.from_numpy(np.searchsorted(cumulative, draws))


@dataclass(frozen=True)
class _Candidate:
    look_up: Callable[[Tensor], Tensor]
    num_parameters: int
    megabytes: float
    is_hot: bool = False


def _candidates(
    budget: Budget, embedding_dim: int, vocab_size: int, seed: int
) -> tuple[dict[str, _Candidate], dict[str, str]]:
    sizes = {"embedding_dim": embedding_dim, "vocab_size": vocab_size, "seed": seed}
    full = FullEmbedding(**sizes)
    published = DeepHashEmbedding.from_budget(budget, **sizes, **PAPER_NETWORK).eval()
    experts = DeepHashEmbedding.from_budget(budget, **sizes).eval()
    products = bare_products(published.decoder)
    hot = torch.arange(max(1, int(vocab_size * HOT_SHARE)))  # the most frequent ids of `zipf_ids`
    codes: dict[int, Tensor] = {}

    def multiply(ids: Tensor) -> Tensor:
        """The layers take codes of the right shape, whatever they are, so these are made once for each batch size."""
        rows = codes.get(len(ids))
        if rows is None:
            rows = codes[len(ids)] = torch.rand(len(ids), published.num_hashes, generator=seeded(seed)) * 2 - 1
        return products(rows)

    candidates, left_out = {FULL: _module(full)}, dict[str, str]()
    try:
        candidates["hash-embedding"] = _module(SCHEMES["hash-embedding"].from_budget(budget, **sizes))
    except ValueError as error:  # its budget is too small; the others can still be timed
        left_out["hash-embedding"] = str(error)
    weights = sum(parameter.numel() for parameter in products.parameters())
    candidates[PRODUCTS] = _Candidate(multiply, weights, weights * BYTES_PER_PARAMETER / 1e6)
    candidates["dhe as published"] = _module(published)
    candidates["dhe, fast"] = _fast(FastEmbedding(published))
    if is_supported():
        candidates["dhe, fast, int8"] = _fast(FastEmbedding(published, precision="int8"))
    else:
        left_out["int8"] = "it needs a CPU with VNNI instructions"
    candidates["dhe, fast, hot"] = _fast(FastEmbedding(published, hot_ids=hot))
    candidates[f"dhe, fast, {experts.num_experts} expert{'s' if experts.num_experts > 1 else ''}"] = _fast(
        FastEmbedding(experts)
    )
    return candidates, left_out


def _module(scheme: EmbeddingScheme) -> _Candidate:
    return _Candidate(scheme.eval(), scheme.num_parameters, scheme.num_bytes / 1e6)


def _fast(fast: FastEmbedding) -> _Candidate:
    is_float32 = fast.scheme.num_bytes >= BYTES_PER_PARAMETER * fast.scheme.num_parameters
    in_bytes = 0  # weights of hidden layers that are stored as float32 and served as one byte each
    if fast.precision == "int8" and is_float32:
        names = [name for name, _ in fast.scheme.named_parameters() if ".hidden." in name]
        in_bytes = sum(fast.scheme.get_parameter(name).numel() for name in names if name.endswith("linear.weight"))
    kept = len(fast.hot_ids.ids) * fast.embedding_dim if fast.hot_ids is not None else 0
    megabytes = (fast.scheme.num_bytes + BYTES_PER_PARAMETER * kept - (BYTES_PER_PARAMETER - 1) * in_bytes) / 1e6
    return _Candidate(fast, fast.scheme.num_parameters, megabytes, is_hot=fast.hot_ids is not None)


def _each(look_up: Callable[[Tensor], Tensor], batches: tuple[Tensor, ...]) -> Callable[[], None]:
    def task() -> None:
        for ids in batches:
            look_up(ids)

    return task


def time_alternately(tasks: Mapping[str, Callable[[], object]], *, repetitions: int = 9) -> dict[str, list[float]]:
    """Seconds of each task in each repetition. Tasks take turns, so that a slow moment of the machine hits them all."""
    for task in tasks.values():
        task()  # compiles, fills caches
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repetitions):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def describe_machine() -> str:
    """The processor and the versions that a measurement depends on, in one line."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    model = next(names, platform.processor())
    wide = "AVX-512" if "AVX512" in torch.backends.cpu.get_cpu_capability() else torch.backends.cpu.get_cpu_capability()
    return (
        f"{model} ({wide}), {torch.get_num_threads()} thread(s), Python {platform.python_version()}, "
        f"torch {torch.__version__}, numpy {np.__version__}"
    )
