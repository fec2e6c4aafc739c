"""The table behind `tableless inspect`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .diagnostics import MAX_DISTANCE_SPREAD, MAX_LOW_DIM, MIN_MEAN_ENTROPY, EncodingReport

if TYPE_CHECKING:
    from rich.table import Table


def render_table(reports: Iterable[EncodingReport]) -> Table:
    """The reports as Table 2, with what was measured beside each ✓ and ✗, for `rich.print`."""
    try:
        from rich import box
        from rich.table import Table
    except ImportError:
        raise ImportError("the table is drawn by rich: pip install 'tableless[cli]'") from None
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
