"""By the million: `python -m tests.fuzz --what ids --inputs 1000000`. What goes wrong is told with its seed.

Every seed is a case of its own, so a run that was stopped goes on from the seed it told last: `--first-seed`.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import torch

from .configs import fuzz_configs
from .ids import fuzz_ids
from .readers import fuzz_readers

TARGETS = {"ids": fuzz_ids, "readers": fuzz_readers, "config": fuzz_configs}


def main() -> None:
    """Go on until there were enough inputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", choices=TARGETS, default="ids")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start, done, seed = time.perf_counter(), 0, arguments.first_seed
    with tempfile.TemporaryDirectory() as folder:
        while done < arguments.inputs:
            try:
                done += TARGETS[arguments.what](Random(seed), Path(folder))
            except BaseException:
                print(f"wrong with --what {arguments.what} --inputs 1 --first-seed {seed}", file=sys.stderr)
                raise
            seed += 1
            if seed % 10_000 == 0:
                print(f"{done:,} inputs, next seed {seed}", file=sys.stderr)
    print(f"{arguments.what}: {done:,} inputs, none wrong, {time.perf_counter() - start:.0f} s, next seed {seed}")


if __name__ == "__main__":
    main()
