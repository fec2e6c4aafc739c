"""All benchmarks but `memory` and `soak`, into RESULTS.md and a picture. With `--quick` they are only tried out.

RESULTS.md has a part for each kind of machine: only that of this machine is replaced. With `--only NAME` one of the
benchmarks is run again, and its section alone is replaced in that part.
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
from benchmarks.results import picture_of, processor_of, section, with_part, with_section

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
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of RESULTS.md and the picture")
    parser.add_argument("--only", choices=list(MEASURES), help="run this one, and replace its section of this machine")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else {}
    with on_threads(1):
        machine = describe_machine()
    path = arguments.out / "RESULTS.md"
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if arguments.only:
        rows = MEASURES[arguments.only](**sizes.get(arguments.only, {}))
        path.write_text(_with_one(before, machine, arguments.only, rows), encoding="utf-8")
        return
    start, tables = time.perf_counter(), list[str]()
    for name, measure in MEASURES.items():
        tables.append(section(name, _shown(name, measure(**sizes.get(name, {})))))
    points = growth.measure(**sizes.get("growth", {}))
    tables.append(section("growth", _shown("growth", growth.rows(points, **(QUICK_STREAM if arguments.quick else {})))))
    picture = picture_of(processor_of(machine))
    tables.append(f"{growth.markdown(points)}\n\n![memory and time as vocabulary and budget grow]({picture})")
    growth.save_picture(points, arguments.out / picture)
    body = "\n\n".join([_head(machine, arguments.quick, time.perf_counter() - start), *tables])
    path.write_text(with_part(before, processor_of(machine), body), encoding="utf-8")
    print(f"The results are in {path}, the picture in {arguments.out / picture}")


def _head(machine: str, quick: bool, seconds: float) -> str:
    """What a part of the results was measured with."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("numba", "polars", "tableless"))
    warning = "\n\n**Tiny sizes (`--quick`): these figures say nothing.**" if quick else ""
    return f"{machine}, {versions}. {date.today():%Y-%m-%d}, in {seconds / 60:.1f} minutes.{warning}"


def _with_one(text: str, machine: str, name: str, rows: list[Row]) -> str:
    """The results with a section of its own date in the place of the old one."""
    body = f"{_shown(name, rows)}\n\nThis section was measured by itself: {machine}. {date.today():%Y-%m-%d}."
    return with_section(text, processor_of(machine), name, body)


def _shown(name: str, rows: list[Row]) -> str:
    """Print the rows, and return them as a table."""
    print(f"{name}.py", flush=True)
    show(rows)
    return markdown(rows)


if __name__ == "__main__":
    main()
