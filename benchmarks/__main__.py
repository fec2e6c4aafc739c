"""All benchmarks but `memory` and `soak`, into RESULTS.md and growth.png. With `--quick` they are only tried out.

With `--only NAME` one of them is run again, and its section alone is replaced.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import busy, coded, compress, growth, hashing, id_rows, ids, inference, serving, training
from benchmarks.measuring import Row, describe_machine, markdown, on_threads, show

QUICK: dict[str, dict[str, Any]] = {
    "hashing": {"num_ids": 100, "num_hashes": 64, "repetitions": 2},
    "ids": {"count": 10_000, "num_distinct": 100, "repetitions": 2},
    "id_rows": {"num_built": 10_000, "num_ids": 1_000, "num_found": 1_000, "repetitions": 2},
    "coded": {"num_ids": 1_000, "num_found": 1_000, "num_coded": 1_000, "repetitions": 2},
    "inference": {"width": 32, "num_hashes": 64, "num_ids": 300, "vocab_size": 10_000, "repetitions": 2},
    "training": {
        "batch_sizes": (256,),
        "steps": 1,
        "repetitions": 2,
        "data": "world:users=200,items=120,actions=6000,clusters=4",
    },
    "busy": {
        "data": "world:users=100,items=60,actions=2000",
        "num_rows": 100,
        "visits": 2,
        "width": 16,
        "num_ids": 200,
        "repetitions": 1,
        "settle": 0,
    },
    "serving": {"networks": {"tiny": (16, 16)}, "seconds": 1, "repetitions": 1},
    "compress": {"num_rows": 2_000, "shares": ("1/4",)},
    "growth": {"vocabularies": (10**4, 10**5, 10**9), "budgets": (10**5, 3 * 10**5), "work": 1e7, "repetitions": 2},
}
QUICK_STREAM = {"num_streamed": 100_000}
MEASURES: dict[str, Callable[..., list[Row]]] = {
    "hashing": hashing.measure,
    "ids": ids.measure,
    "id_rows": id_rows.measure,
    "coded": coded.measure,
    "inference": inference.measure,
    "training": training.measure,
    "busy": busy.measure,
    "serving": serving.measure,
    "compress": compress.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of RESULTS.md and growth.png")
    parser.add_argument("--only", choices=list(MEASURES), help="run this one, and replace its section in RESULTS.md")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else {}
    if arguments.only:
        _replace(
            arguments.out / "RESULTS.md", arguments.only, MEASURES[arguments.only](**sizes.get(arguments.only, {}))
        )
        return
    start, tables = time.perf_counter(), list[str]()
    for name, measure in MEASURES.items():
        tables.append(_section(name, measure(**sizes.get(name, {}))))
    points = growth.measure(**sizes.get("growth", {}))
    tables.append(_section("growth", growth.rows(points, **(QUICK_STREAM if arguments.quick else {}))))
    tables.append(f"{growth.markdown(points)}\n\n![memory and time as vocabulary and budget grow](growth.png)")
    growth.save_picture(points, arguments.out / "growth.png")
    text = "\n\n".join([_head(arguments.quick, time.perf_counter() - start), *tables]) + "\n"
    (arguments.out / "RESULTS.md").write_text(text, encoding="utf-8")
    print(f"The results are in {arguments.out / 'RESULTS.md'}, the picture in {arguments.out / 'growth.png'}")


def _head(quick: bool, seconds: float) -> str:
    with on_threads(1):
        machine = describe_machine()
    versions = ", ".join(f"{name} {version(name)}" for name in ("numba", "polars", "tableless"))
    warning = "\n\n**Tiny sizes (`--quick`): these figures say nothing.**" if quick else ""
    return (
        f"# Results of `make bench`\n\n{machine}, {versions}. {date.today():%Y-%m-%d}, in {seconds / 60:.1f} minutes. "
        "Medians, and the range over repetitions; ratios are taken within a repetition; one thread, unless a row says "
        f"otherwise. Written by `python -m benchmarks`; change nothing here by hand.{warning}"
    )


def _replace(path: Path, name: str, rows: list[Row]) -> None:
    """Put a section of its own date into the results in the place of the old one."""
    with on_threads(1):
        machine = describe_machine()
    before, heading, after = path.read_text(encoding="utf-8").partition(f"## {name}.py\n")
    if not heading:
        raise ValueError(f"{path} has no section of {name}.py; run all benchmarks first")
    rest = after.partition("\n## ")
    section = f"{_section(name, rows)}\n\nThis section was measured by itself: {machine}. {date.today():%Y-%m-%d}.\n"
    path.write_text(before + section + rest[1] + rest[2], encoding="utf-8")


def _section(name: str, rows: list[Row]) -> str:
    print(f"{name}.py", flush=True)
    show(rows)
    return f"## {name}.py\n\n{markdown(rows)}"


if __name__ == "__main__":
    main()
