"""`tableless inspect`: a table, and a picture of how codes are spread, how far apart they are, and how well used."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import torch
import typer
from rich.console import Console

from ..embedding.diagnostics import (
    MAX_DISTANCE_SPREAD,
    MAX_LOW_DIM,
    MIN_MEAN_ENTROPY,
    EncodingReport,
    mean_distances,
    measure_encodings,
    sample_pairs,
    spread,
)
from ..embedding.encoders import DenseHashEncoder
from ..embedding.paper_encodings import DenseEncoding, OneHotEncoding, paper_encodings
from ..files.whole import replacing
from ..hints import install_hint
from .app import app
from .options import AsJson

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table


@app.command(epilog="Example: tableless inspect --num-ids 100000 --picture encodings.png")
def inspect(
    num_ids: Annotated[int, typer.Option(help="How many ids to encode.")] = 100_000,
    num_hashes: Annotated[int, typer.Option(help="Hash functions of the dense encoding.")] = 1024,
    seed: Annotated[int, typer.Option(help="Seed of the hash functions.")] = 0,
    picture: Annotated[Path | None, typer.Option(help="Save a picture of the distributions here (PNG).")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure what the paper asks of an encoding: unique, equally similar, high-dimensional, high entropy."""
    reports = measure_encodings(num_ids, num_hashes=num_hashes, seed=seed)
    if picture is not None:
        picture.parent.mkdir(parents=True, exist_ok=True)
        save_encodings_picture(picture, num_ids=num_ids, num_hashes=num_hashes, seed=seed)
    if as_json:
        result = {"num_ids": num_ids, "encodings": [report.as_dict() for report in reports]}
        print(json.dumps(result | ({"picture": str(picture)} if picture else {})))
        return
    console = Console()
    console.print(render_encodings(reports))
    if picture is not None:
        console.print(f"The distributions are drawn in {picture}")


_BLUE, _ORANGE, _INK = "#3b6fb6", "#d9822b", "#333333"
_HISTOGRAM_NUMBERS = 2**20  # enough to fill a hundred bins smoothly
_FARTHEST = 3.0  # in mean distances: larger distances, of which the identity has many, are counted in the last bin


def render_encodings(reports: Iterable[EncodingReport]) -> Table:
    """The reports as Table 2, with what was measured beside each ✓ and ✗, for `rich.print`."""
    try:
        from rich import box
        from rich.table import Table
    except ImportError:
        raise ImportError(f"the table is drawn by rich: {install_hint('cli')}") from None
    reports = list(reports)
    table = Table(caption=_caption(reports), caption_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    for heading in ("encoding", "unique", "equally\nsimilar", "high\ndimension", "high\nentropy"):
        table.add_column(heading, no_wrap=True)
    for report in reports:
        collisions = f"{_percent(report.colliding_ids)} of ids\n  {_percent(report.colliding_draws)} of draws"
        table.add_row(
            report.name,
            f"{_mark(report.unique)} {collisions if report.colliding_draws else 'no collision'}",
            f"{_mark(report.equally_similar)} {_percent(report.distance_spread)}",
            f"{_mark(report.high_dimensional)} {report.code_dim:,}",
            f"{_mark(report.high_entropy)} {_percent(report.mean_entropy)}\n  ≥ {_percent(report.lowest_entropy)}",
        )
    return table


def _caption(reports: Sequence[EncodingReport]) -> str:
    num_ids = " / ".join(f"{num_ids:,}" for num_ids in sorted({report.num_ids for report in reports}))
    return (
        f"Measured on the codes of {num_ids} ids.\n"
        "unique: ids (0, 1, … and, for hashes, as many strings) that share their code with another, and draws of the "
        "hash functions in which any do (✓: none)\n"
        "equally similar: spread over pairs of ids of the distance between their codes, averaged over draws "
        f"(✓: up to {_percent(MAX_DISTANCE_SPREAD)} of the mean)\n"
        f"high dimension: length of the code (✓: above {MAX_LOW_DIM})\n"
        "high entropy: share of the highest possible, mean over dimensions and the lowest "
        f"(✓: mean from {_percent(MIN_MEAN_ENTROPY)}, no dimension constant)"
    )


def _mark(verdict: bool) -> str:
    return "[green]✓[/]" if verdict else "[red]✗[/]"


def _percent(share: float) -> str:
    percent = round(100 * share, 4)
    digits = f"{percent:.1f}".removesuffix(".0") if percent >= 1 else f"{percent:.2g}"
    return f"{digits} %"


def save_encodings_picture(
    path: str | Path,
    *,
    num_ids: int = 100_000,
    num_hashes: int = 1024,
    num_buckets: int = 1_000_000,
    seed: int = 0,
) -> None:
    """Write a PNG of what `measure_encodings` measures with the same arguments."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(f"the picture is drawn by matplotlib: {install_hint('cli')}") from None

    encodings = paper_encodings(num_ids, num_hashes=num_hashes, num_buckets=num_buckets)
    figure = Figure(figsize=(15, 5.6), layout="constrained")  # not pyplot's: nothing global, no display
    left, middle, right = figure.subplots(1, 3, width_ratios=[1, 1.25, 1.1])
    ids = torch.linspace(0, num_ids - 1, min(num_ids, _HISTOGRAM_NUMBERS // num_hashes + 1), dtype=torch.float64).long()
    _draw_codes(left, ids, num_hashes=num_hashes, num_buckets=num_buckets, seed=seed)
    _draw_distances(middle, encodings, num_ids, seed)
    _draw_entropies(right, encodings, num_ids, seed)
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_weight("bold")
    figure.suptitle(f"Codes of {num_ids:,} ids")
    with replacing(Path(path)) as part:
        figure.savefig(part, format="png", dpi=120)


def _draw_codes(axes: Axes, ids: torch.Tensor, *, num_hashes: int, num_buckets: int, seed: int) -> None:
    """The coordinates of dense hash codes against the density each distribution promises."""
    edges = np.linspace(-4, 4, 129)
    distributions: tuple[tuple[Literal["uniform", "gaussian"], str], ...] = (("uniform", _BLUE), ("gaussian", _ORANGE))
    for distribution, colour in distributions:
        even = num_hashes + num_hashes % 2  # gaussian codes are made in pairs
        encoder = DenseHashEncoder(even, num_buckets=num_buckets, distribution=distribution, seed=seed)
        density, _ = np.histogram(encoder(ids).numpy(), edges, density=True)
        axes.stairs(density, edges, fill=True, color=colour, alpha=0.45, label=f"{distribution} codes")
    x = np.linspace(-4, 4, 801)
    ideals = np.where(np.abs(x) <= 1, 0.5, 0.0), np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    for ideal, style, name in zip(ideals, ("-", "--"), ("U(-1, 1)", "N(0, 1)"), strict=True):
        axes.plot(x, ideal, style, color=_INK, linewidth=1.2, label=name)
    axes.set(title="Dense hash: values of a coordinate", xlabel="value", ylabel="density", ylim=(0, 0.72))
    axes.legend(edgecolor="none", ncols=2, loc="upper center")


def _draw_distances(axes: Axes, encodings: list[OneHotEncoding | DenseEncoding], num_ids: int, seed: int) -> None:
    """A row per encoding: the distances of pairs, each row with its own scale, since a spike dwarfs a broad hill."""
    pairs = sample_pairs(num_ids, seed=seed)
    edges = np.linspace(0, _FARTHEST, 122)  # an odd number of bins, so that none begins at the mean
    for row, encoding in enumerate(encodings):
        distances = mean_distances(encoding, pairs, range(seed, seed + encoding.num_draws))
        relative = distances / distances.mean().clamp(min=1e-30)  # the mean of codes that are all alike is 0
        counts, _ = np.histogram(relative.clamp(max=_FARTHEST).numpy(), edges)
        axes.stairs(row - 0.8 * counts / counts.max(), edges, baseline=row, fill=True, color=_BLUE)
        axes.text(1.02 * _FARTHEST, row, f"spread\n{spread(distances):.1%}", va="bottom", color=_INK)
        axes.axhline(row, color=_INK, linewidth=0.6)
    axes.axvline(1, color=_INK, linewidth=0.6, linestyle=":")
    axes.set(
        title="Equal similarity: one spike at 1",
        xlabel="distance of two codes, averaged over hash draws,\nas a multiple of the mean over pairs",
        ylim=(len(encodings) - 0.8, -1),
        xlim=(0, _FARTHEST),
    )
    axes.set_xticks(np.arange(0, _FARTHEST + 0.5, 0.5))
    axes.set_xticklabels([f"{tick:g}" for tick in axes.get_xticks()[:-1]] + [f"≥ {_FARTHEST:g}"])
    axes.set_yticks(range(len(encodings)), [encoding.name for encoding in encodings])
    axes.tick_params(axis="y", length=0)


def _draw_entropies(axes: Axes, encodings: list[OneHotEncoding | DenseEncoding], num_ids: int, seed: int) -> None:
    """A bar to the mean over dimensions, and a line from the lowest dimension to the highest."""
    for row, encoding in enumerate(encodings):
        shares, _ = encoding.entropies(seed, torch.arange(num_ids))
        mean, lowest, highest = shares.mean().item(), shares.min().item(), shares.max().item()
        axes.barh(row, mean, height=0.5, color=_BLUE)
        axes.plot([lowest, highest], [row, row], color=_INK, linewidth=1.5, marker="|", markersize=12)
        axes.text(1.03, row, f"{mean:.2%}", va="center", color=_INK)
    axes.axvline(MIN_MEAN_ENTROPY, color=_ORANGE, linestyle="--", linewidth=1, label=f"✓ from {MIN_MEAN_ENTROPY:.0%}")
    axes.set(
        title="Entropy per dimension",
        xlabel="share of the highest possible\n(bar: mean; line: lowest to highest dimension)",
        ylim=(len(encodings) - 0.5, -1),
        xlim=(0, 1.22),
    )
    axes.set_xticks(np.linspace(0, 1, 6), [f"{tick:.0%}" for tick in np.linspace(0, 1, 6)])
    axes.set_yticks(range(len(encodings)), [encoding.name for encoding in encodings])
    axes.legend(frameon=False, loc="upper left")
