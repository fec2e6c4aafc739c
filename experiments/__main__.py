"""Everything, from the first run to the report: `python -m experiments [NAME …] [--minutes N]`, any number of times."""

from __future__ import annotations

import argparse

from . import repeated, report
from .running import run_all

# Of each seed the cheap ones first; the last runs of figure 2 are the longest of all.
_ORDER = [
    *(
        "table1",
        "table2",
        "table8",
        "table3",
        "table6",
        "figure3",
        "table5",
        "teacher",
        "new_ids",
        "cold_start",
        "online_tuning",
    ),
    *("online", "deepfm", "replacing", "sentences"),
    *(
        "losses",
        "students",
        "frontier",
        "few_bits",
        "choices",
        "elsewhere",
        "clicks",
        "experts",
        "table7",
        "table4",
        "figure2",
    ),
]
_BY_NAME = {module.EXPERIMENT.name: module.EXPERIMENT for module in report.SECTIONS.values()}
EXPERIMENTS = {name: _BY_NAME[name] for name in sorted(_BY_NAME, key=_ORDER.index)}


def main() -> None:
    """Do what is pending, then write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which (all): {', '.join(EXPERIMENTS)}")
    parser.add_argument("--workers", type=int, default=2, help="runs side by side, a core each")
    parser.add_argument("--minutes", type=float, help="begin no run after this time")
    parser.add_argument("--repeat", type=int, metavar="ROWS", help="run so many finished rows, drawn from all, again")
    parser.add_argument("--draw", type=int, default=repeated.DRAW, help="another number draws other rows")
    arguments = parser.parse_args()
    experiments = [EXPERIMENTS[name] for name in arguments.names or EXPERIMENTS]
    if arguments.repeat:
        experiments = [repeated.drawn(EXPERIMENTS.values(), arguments.repeat, arguments.draw)]
    run_all(experiments, workers=arguments.workers, minutes=arguments.minutes)
    print(f"the report is in {report.write()}")


if __name__ == "__main__":
    main()
