"""What a comparison shows: a summary of its runs, as a table for a terminal and as a picture.

The picture is the paper's Figure 2, with bytes for parameters.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files.whole import replacing
from ..hints import install_hint
from .evaluation import METRICS, is_above_popularity

if TYPE_CHECKING:
    from rich.table import Table

Result = dict[str, Any]
"""A line of a run, or a row of the summary."""
TOP = "ndcg@10"
"""Shown beside the AUC. The AUC counts all places alike, but people see hardly more than the first ten items."""

# Strong colours for the schemes that people choose between, pale ones for those whose ids share rows.
_LOOKS = {
    "full": ("black", "o"),
    "dhe": ("#1f77b4", "o"),
    "head-and-tail": ("#17becf", "p"),
    "coded": ("#d62728", "s"),
    "product-quantized": ("#2ca02c", "D"),
    "quantized": ("#ff7f0e", "X"),
    "low-rank": ("#9467bd", ">"),
    "cce": ("#e377c2", "^"),
    "compositional": ("#8c564b", "<"),
    "hash-embedding": ("#bcbd22", "P"),
    "hybrid": ("#c49c94", "v"),
    "robe": ("#9edae5", "h"),
    "bloom": ("#c7c7c7", "d"),
    "hashing-trick": ("#7f7f7f", "*"),
}


def look_of(scheme: str) -> tuple[str, str]:
    """Colour and marker of a scheme: the same in every picture. One that is not ours gets one of ten colours."""
    number = sum(scheme.encode())
    return _LOOKS.get(scheme, (f"C{number % 10}", "osD^v<>pXP*h"[number % 12]))


def summarise_runs(lines: Iterable[Result]) -> list[Result]:
    """Means over seeds, largest budgets first and best first within one, with the share of the gap to the full table.

    Where a scheme can't answer for new ids, all are compared on the known ones.
    """
    groups: dict[tuple[str, str, str], list[Result]] = {}
    lines = list(lines)
    for line in lines:
        model = line["model"]
        groups.setdefault((model["backbone"], model["budget"], model["scheme"]), []).append(line)
    closed = next((line["results"] for line in lines if line.get("results", {}).get("unanswered")), None)
    rows = [_row(*key, members, closed) for key, members in groups.items()]
    full = {row["backbone"]: row["auc"] for row in rows if row["scheme"] == "full" and row["auc"] is not None}
    for row in rows:
        top = full.get(row["backbone"])
        if row["auc"] is not None and top is not None and top > row["popularity_auc"]:
            row["gap_closed"] = (row["auc"] - row["popularity_auc"]) / (top - row["popularity_auc"])
    sizes: dict[tuple[str, str], int] = {}  # schemes of one budget stay together, though they use it up more or less
    for row in rows:
        group = row["backbone"], row["budget"]
        sizes[group] = max(sizes.get(group, 0), row.get("bytes", 0))
    return sorted(rows, key=lambda row: (row["backbone"], -sizes[row["backbone"], row["budget"]], -(row["auc"] or 0)))


def _row(backbone: str, budget: str, scheme: str, members: list[Result], closed: Result | None) -> Result:
    row: Result = {"backbone": backbone, "budget": budget, "scheme": scheme, "seeds": len(members), "auc": None}
    results = [line["results"] for line in members if "results" in line]
    if not results:
        return row | {"error": members[0]["error"]}
    measured = [result.get("known", result) if closed else result for result in results]
    for name in METRICS:
        if all(name in result for result in measured):
            values = [result[name] for result in measured]
            row[name] = statistics.mean(values)
            row[f"{name}_sd"] = statistics.stdev(values) if len(values) > 1 else None
            errors = [result[f"{name}_se"] for result in measured if f"{name}_se" in result]
            row[f"{name}_se"] = statistics.mean(errors) if errors else None
    row |= {name: statistics.mean(result[name] for result in results) for name in ("validation_auc", "seconds")}
    first, floor = measured[0], closed or results[0]
    row |= {name: first.get(name) for name in ("evaluated", "held_out", "auc_items")}
    row |= {name: floor[name] for name in ("popularity", "popularity_auc", "best_possible", "best_possible_auc")
            if name in floor}  # fmt: skip
    sizes = ("bytes", "bytes_per_id", "embedding_parameters", "unanswered")
    return row | {
        **{name: results[0][name] for name in sizes},
        "capped": any(result["capped"] for result in results),
    }


def render_comparison(rows: Sequence[Result]) -> Table:
    """The summary for a terminal."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption="\n".join(_remarks(rows)), caption_justify="left")
    for name in ("", "scheme", "budget", "bytes/id", "test AUC", "se", METRICS[TOP].label, "gap", "s"):
        table.add_column(name, justify="left" if name in ("", "scheme") else "right", no_wrap=True)
    for row in rows:
        if row["auc"] is None:
            table.add_row(row["backbone"], row["scheme"], row["budget"], "", "too small")
            continue
        spread = f" ±{_short(row['auc_sd'])}" if row["auc_sd"] is not None else ""
        table.add_row(
            row["backbone"],
            row["scheme"],
            row["budget"],
            f"{row['bytes_per_id']:.1f}",
            f"{_short(row['auc'])}{spread}{'†' if row['capped'] else ''}",
            _short(row["auc_se"]),
            _short(row[TOP]),
            f"{round(100 * row['gap_closed'])}%" if "gap_closed" in row else "",
            f"{row['seconds']:.0f}",
        )
    return table


def _remarks(rows: Sequence[Result]) -> Iterator[str]:
    """What stands below the table."""
    done = [row for row in rows if row["auc"] is not None]
    if done:
        yield f"Popularity alone: AUC {_short(done[0]['popularity_auc'])}, " + (
            f"{METRICS[TOP].label} {_short(done[0]['popularity'][TOP])}, for the same users and items."
        )
        if "best_possible_auc" in done[0]:
            yield f"Best possible in this world: AUC {_short(done[0]['best_possible_auc'])}."
        counts = sorted({row["evaluated"] for row in done})
        users = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
        yield f"Measured on {users} of {done[0]['held_out']:,} users. se: standard error over users; ±: over seeds."
        yield "Bytes/id: of all embeddings, as stored, for each known user and item."
        yield "Gap: share of the way from popularity to the full table."
    if any(row["auc_items"] for row in done):
        yield f"AUC against {done[0]['auc_items']:,} items drawn for each user; {METRICS[TOP].label} over all items."
    weak = [f"{row['scheme']} {row['budget']} ({row['backbone']})" for row in done if not is_above_popularity(row)]
    if weak:
        yield f"Not clearly above popularity: {', '.join(weak)}."
        yield "Try a smaller --batch-size (small data needs it), more --epochs, another --recipe, larger --budgets."
    if any(row["capped"] for row in done):
        yield "†: ended at the limit of epochs, not by itself; more epochs may be better."


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}".removeprefix("0")


def save_comparison_picture(rows: Sequence[Result], path: Path) -> None:
    """AUC, and below it the top of the ranking, against bytes per id: a line per scheme, a column per backbone."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(f"the picture is drawn by matplotlib: {install_hint('cli')}") from None
    rows = [row for row in rows if row["auc"] is not None]
    backbones = sorted({row["backbone"] for row in rows})
    schemes = sorted({row["scheme"] for row in rows} - {"full"})
    figure = Figure(figsize=(5.2 * len(backbones) + 1.6, 7.6), layout="constrained")
    figure.suptitle(f"What embeddings of few bytes keep: test {METRICS['auc'].label} and {METRICS[TOP].label}")
    panels = figure.subplots(2, len(backbones), squeeze=False, sharex="col")
    for column, backbone in enumerate(backbones):
        own = [row for row in rows if row["backbone"] == backbone]
        for panel, name in zip(panels[:, column], ("auc", TOP), strict=True):
            for scheme in schemes:
                _draw_scheme(panel, [row for row in own if row["scheme"] == scheme], name)
            for row in (row for row in own if row["scheme"] == "full"):
                label = f"full table ({row['bytes_per_id']:.0f} bytes per id)"
                panel.axhline(row[name], color="black", linestyle="--", label=label)
            panel.axhline(own[0]["popularity"][name], color="grey", linestyle=":", label="popularity")
            if "best_possible" in own[0]:
                panel.axhline(own[0]["best_possible"][name], color="green", linestyle="-.", label="best possible")
            panel.set(ylabel=f"test {METRICS[name].label}", xscale="log")
            _mark_sizes(panel, own)
            panel.spines[["top", "right"]].set_visible(False)
        panels[0, column].set_title(backbone.upper())
        panels[1, column].set_xlabel("bytes per id, users and items together (logarithmic)")
    panels[0, -1].legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as part:
        figure.savefig(part, dpi=130, format="png")


def _mark_sizes(panel: Any, rows: Sequence[Result]) -> None:
    """Marks at powers of two, which budgets mostly are, as far as the points reach; one point stands in the middle."""
    sizes = [row["bytes_per_id"] for row in rows if row["scheme"] != "full"]
    if sizes:
        lowest, highest = min(sizes) / 1.5, max(sizes) * 1.5
        ticks = [2.0**power for power in range(-6, 21) if lowest <= 2.0**power <= highest]
        panel.set_xlim(lowest, highest)
        panel.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
        panel.minorticks_off()


def _draw_scheme(panel: Any, rows: Sequence[Result], name: str) -> None:
    """One line; a hollow marker is a run that ended at its limit of epochs."""
    if not rows:
        return
    rows = sorted(rows, key=lambda row: row["bytes_per_id"])
    color, marker = look_of(rows[0]["scheme"])
    sizes, values = [row["bytes_per_id"] for row in rows], [row[name] for row in rows]
    spread = [row[f"{name}_sd"] or 0 for row in rows]
    width = 2.4 if rows[0]["scheme"] == "dhe" else 1.2
    panel.errorbar(sizes, values, yerr=spread, color=color, linewidth=width, capsize=3)
    for capped, face in ((False, color), (True, "white")):
        points = [(row["bytes_per_id"], row[name]) for row in rows if row["capped"] is capped]
        if points:
            label = rows[0]["scheme"] + (" (ended at its limit)" if capped else "")
            panel.plot(*zip(*points, strict=True), marker, color=color, markerfacecolor=face, label=label)
