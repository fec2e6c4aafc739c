"""Everything, from the first run to the report: `python -m experiments [NAME …] [--minutes N]`, any number of times."""

from __future__ import annotations

import argparse

from . import elsewhere, figure2
from .running import run_all

EXPERIMENTS = {module.EXPERIMENT.name: module.EXPERIMENT for module in (figure2, elsewhere)}


def main() -> None:
    """Do what is pending."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which (all): {', '.join(EXPERIMENTS)}")
    parser.add_argument("--workers", type=int, default=2, help="runs side by side, a core each")
    parser.add_argument("--minutes", type=float, help="begin no run after this time")
    arguments = parser.parse_args()
    run_all(
        [EXPERIMENTS[name] for name in arguments.names or EXPERIMENTS],
        workers=arguments.workers,
        minutes=arguments.minutes,
    )


if __name__ == "__main__":
    main()
