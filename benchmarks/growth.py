"""How do size and time grow with the vocabulary, and with the budget? One thread; a picture, a table, and a limit.

The limit is on memory: ten million different ids, one after the other, must not take more for each that has passed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from benchmarks.measuring import Row, Spread, at_most, describe_machine, figure, on_threads, show, time_alternately
from benchmarks.results import picture_of, processor_of
from tableless import DeepHashEmbedding
from tableless.embedding.tables import FullEmbedding
from tableless.serving import FastEmbedding

DIM = 32
VOCABULARIES = tuple(10**power for power in range(4, 10))
BUDGETS = tuple(10**power for power in range(5, 9))
FIXED_BUDGET = 1_000_000
LARGEST_TIMED_TABLE = 2e9  # bytes
STREAM_TARGET = 300.0  # MB


@dataclass(frozen=True)
class Point:
    """One size of one scheme. Memory is that of the weights, in float32."""

    axis: str  # what grows: "vocabulary" or "budget"
    scheme: str
    size: int
    num_parameters: int
    ids_per_call: int = 0
    time: Spread | None = None  # µs per id; None where the table is too large to be built

    @property
    def megabytes(self) -> float:
        """Four bytes for each parameter."""
        return self.num_parameters * 4 / 1e6


def measure(
    *,
    vocabularies: Sequence[int] = VOCABULARIES,
    budgets: Sequence[int] = BUDGETS,
    fixed_budget: int = FIXED_BUDGET,
    work: float = 4e9,
    repetitions: int = 5,
) -> list[Point]:
    """`work` is about how many products a call may take: it sets how many ids go into one."""
    with on_threads(1), torch.inference_mode():
        return [
            *(_dhe("vocabulary", size, fixed_budget, size, work, repetitions) for size in vocabularies),
            *(_full(size, repetitions) for size in vocabularies),
            *(_dhe("budget", size, size, 2**62, work, repetitions, num_experts=1) for size in budgets),
            *(_dhe("budget", size, size, 2**62, work, repetitions) for size in budgets),
        ]


def rows(points: Sequence[Point], *, num_streamed: int = 10_000_000) -> list[Row]:
    """What the points come to, and the memory of a stream."""
    found = []
    for axis, scheme in dict.fromkeys((point.axis, point.scheme) for point in points):
        line = [point for point in points if (point.axis, point.scheme) == (axis, scheme)]
        first, last = line[0].time, line[-1].time
        if first is not None and last is not None:
            growth = Spread(last.median / first.median, last.low / first.high, last.high / first.low)
            question = f"{scheme}: time per id, {axis} of {line[-1].size:,} against {line[0].size:,}"
            found.append(figure(question, growth, " ×"))
    question = f"peak memory of {num_streamed:,} distinct ids through FastEmbedding, above the import"
    return [*found, at_most(question, Spread.of([measure_stream(num_streamed)]), STREAM_TARGET, " MB")]


def markdown(points: Sequence[Point]) -> str:
    """The points as a table."""
    lines = ["| grows | to | scheme | parameters | MB | µs per id | ids per call |", "| --- " * 7 + "|"]
    for point in points:
        time = "–" if point.time is None else f"{point.time.median:.3g} ({point.time.low:.3g}–{point.time.high:.3g})"
        lines.append(
            f"| {point.axis} | {point.size:,} | {point.scheme} | {point.num_parameters:,} | {point.megabytes:,.1f} "
            f"| {time} | {point.ids_per_call or '–'} |"
        )
    return "\n".join(lines)


def save_picture(points: Sequence[Point], path: Path) -> None:
    """Memory and time, against the vocabulary and against the budget."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(10.4, 7.2), layout="constrained")
    panels = drawing.subplots(2, 2, sharex="col", squeeze=False)
    titles = {"vocabulary": "the vocabulary grows, the budget stays", "budget": "the budget grows"}
    for column, axis in enumerate(titles):
        own = [point for point in points if point.axis == axis]
        for number, scheme in enumerate(dict.fromkeys(point.scheme for point in own)):
            line = [point for point in own if point.scheme == scheme]
            style = {"marker": "osD"[number], "linewidth": 2.4 if scheme.startswith("dhe") else 1.2, "label": scheme}
            panels[0, column].plot([point.size for point in line], [point.megabytes for point in line], **style)
            timed = [(point.size, point.time) for point in line if point.time is not None]
            panels[1, column].errorbar(
                [size for size, _ in timed],
                [time.median for _, time in timed],
                yerr=[
                    [time.median - time.low for _, time in timed],
                    [time.high - time.median for _, time in timed],
                ],
                capsize=3,
                **style,
            )
        panels[0, column].set(title=titles[axis], ylabel="MB")
        panels[1, column].set(xlabel={"vocabulary": "ids", "budget": "parameters"}[axis], ylabel="µs per id")
        panels[0, column].legend(frameon=False)
    for panel in panels.flat:
        panel.set(xscale="log", yscale="log")
        panel.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=130)


def measure_stream(num_ids: int) -> float:
    """The peak of a process that looks up so many ids, in MB above its peak after the imports."""
    code = f"from benchmarks.growth import stream; print(stream({num_ids}))"
    root = Path(__file__).parents[1]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    return float(result.stdout)


def stream(num_ids: int, *, ids_per_call: int = 65_536) -> float:
    """What the process above does: all ids different, and no vector kept."""
    import numba  # noqa: F401 - part of the import that is not counted

    before = _peak_memory()
    fast = FastEmbedding(DeepHashEmbedding.from_budget(FIXED_BUDGET, embedding_dim=DIM, vocab_size=num_ids))
    for start in range(0, num_ids, ids_per_call):
        fast(torch.arange(start, min(start + ids_per_call, num_ids)))
    return _peak_memory() - before


def _peak_memory() -> float:
    """Of this program, in MB. On Linux `getrusage` would count the parent from which the process was started, too."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) / 1e3 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def _dhe(
    axis: str, size: int, budget: int, num_ids: int, work: float, repetitions: int, *, num_experts: int | None = None
) -> Point:
    options = {} if num_experts is None else {"num_experts": num_experts}
    with torch.inference_mode(False):  # FastEmbedding watches the versions of weights, which inference tensors lack
        scheme = DeepHashEmbedding.from_budget(budget, embedding_dim=DIM, vocab_size=size, **options)
    # Each id once, or a small vocabulary would look quicker than it is: repeated ids are computed once.
    count = int(min(max(work * scheme.num_experts / scheme.num_parameters, 256), 65_536, num_ids))
    name = {"vocabulary": "dhe", "budget": "dhe, experts" if num_experts is None else "dhe, one network"}[axis]
    time = _time(FastEmbedding(scheme), count, num_ids, repetitions)
    return Point(axis, name, size, scheme.num_parameters, count, time)


def _full(vocab_size: int, repetitions: int, *, count: int = 65_536) -> Point:
    num_parameters, count = vocab_size * DIM, min(count, vocab_size)
    if num_parameters * 4 > LARGEST_TIMED_TABLE:
        return Point("vocabulary", "full", vocab_size, num_parameters)
    time = _time(FullEmbedding(DIM, vocab_size=vocab_size), count, vocab_size, repetitions)
    return Point("vocabulary", "full", vocab_size, num_parameters, count, time)


def _time(module: nn.Module, count: int, num_ids: int, repetitions: int) -> Spread:
    generator = torch.Generator().manual_seed(0)
    if num_ids <= 10**6:
        ids = torch.randperm(num_ids, generator=generator)[:count]
    else:
        ids = torch.randint(num_ids, (count,), generator=generator)
    seconds = time_alternately({"look up": lambda: module(ids)}, repetitions=repetitions)["look up"]
    return Spread.of(value / count * 1e6 for value in seconds)


if __name__ == "__main__":
    measured = measure()
    show(rows(measured))
    print(markdown(measured))
    save_picture(measured, Path(__file__).with_name(picture_of(processor_of(describe_machine()))))
