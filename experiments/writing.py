"""How the report is written: tables in markdown, pictures beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = Path(__file__).parent / "pictures"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, num_texts: int = 1) -> str:
    """A markdown table; the first `num_texts` columns are words, the others are aligned right as figures are."""
    alignment = ["---"] * num_texts + ["---:"] * (len(headings) - num_texts)
    lines = [headings, alignment, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def new_picture(*, width: float = 6.4, height: float = 4.2) -> Figure:
    """An empty one."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("the pictures are drawn by matplotlib: pip install 'tableless[cli]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def save_picture(figure: Figure, name: str, *, says: str) -> str:
    """Save it, and say how the report refers to it."""
    PICTURES.mkdir(exist_ok=True)
    # Without the date and version that matplotlib would add, the same lines give the same file.
    figure.savefig(PICTURES / f"{name}.png", dpi=130, metadata={"Software": None})
    return f"![{says}](pictures/{name}.png)"
