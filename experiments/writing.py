"""How the report is written: tables in markdown, pictures beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .finished import SHOWN, Finished
from .running import Settings
from .training_runs import RECIPES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES = Path(__file__).parent / "pictures"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, num_texts: int = 1) -> str:
    """A markdown table; the first `num_texts` columns are words, the others are aligned right as figures are."""
    alignment = ["---"] * num_texts + ["---:"] * (len(headings) - num_texts)
    lines = [headings, alignment, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def paragraphs(parts: Iterable[str]) -> str:
    """The parts that say something, one below the other."""
    return "\n\n".join(part for part in parts if part)


def metrics_by_recipe(*further: str) -> list[str]:
    """Headings of what each recipe has: the metrics that are shown, and perhaps something more."""
    return [f"{name}: {what}" for name in RECIPES.values() for what in (*SHOWN.values(), *further)]


def new_picture(*, width: float = 6.4, height: float = 4.2) -> Figure:
    """An empty one."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("the pictures are drawn by matplotlib: pip install 'tableless[cli]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def markers(
    axes: Axes,
    finished: Finished,
    points: Sequence[tuple[float, Sequence[Settings]]],
    metric: str,
    *,
    style: str = "o",
    color: str = "C0",
    label: str | None = None,
) -> None:
    """Draw the mean of each point's runs, in per cent, joined by a line; hollow where one stopped at the limit."""
    places = [place for place, _ in points]
    means = [100 * (finished.mean(runs, metric) or 0.0) for _, runs in points]
    axes.plot(places, means, color=color, linewidth=1.2)
    for number, (place, mean) in enumerate(zip(places, means, strict=True)):
        is_hollow = finished.capped(points[number][1])
        axes.plot(
            [place],
            [mean],
            linestyle="none",
            marker=style,
            color=color,
            markerfacecolor="white" if is_hollow else color,
            label=None if number else label,
        )


def save_picture(figure: Figure, name: str, *, says: str) -> str:
    """Save it, and say how the report refers to it."""
    PICTURES.mkdir(exist_ok=True)
    # Without the date and version that matplotlib would add, the same lines give the same file.
    figure.savefig(PICTURES / f"{name}.png", dpi=130, metadata={"Software": None})
    return f"![{says}](pictures/{name}.png)"
