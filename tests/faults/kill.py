"""Kill -9 at random moments of train, compare, embed and export: `python -m tests.faults.kill --times 50`.

A moment is a time, or a step: just before or after a file gets its name or is forced to the disk, where things would
go wrong. After each kill every file must be whole. The work is taken up again until it ends, and must end as it does
when nobody disturbs it. All of it happens in children of a process that has imported everything and started nothing.
"""

import argparse
import mmap
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch._export.serde.serialize
import torch.export._trace
import torch.export.pt2_archive._package
import torch.utils.tensorboard
from matplotlib.figure import Figure  # noqa: F401 - a job would import it first thing, and so what is above

import tests.before_forks  # noqa: F401
from tableless.embedding import distillation
from tests.faults.jobs import JOBS, Job, prepare

_STEPS = ("fsync", "replace", "rename")
_steps_taken = mmap.mmap(-1, 8)  # seen by parent and children


def main() -> None:
    """Do it, and say how often it was done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50, help="kills of each job")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    distillation._MOST_VISITS = 20  # so that a kill comes as often to what follows
    with tempfile.TemporaryDirectory() as temporary:
        finished(prepare, Path(temporary))
        for name in arguments.jobs:
            folder = Path(temporary) / name
            folder.mkdir()
            for shared in ("model", "ids"):
                (folder / shared).symlink_to(Path(temporary) / shared)
            ends = survive(JOBS[name], folder, arguments.times, random.Random(arguments.seed))
            print(f"{name}: {arguments.times} kills survived, {ends} ends as undisturbed", flush=True)


def survive(job: Job, folder: Path, times: int, source: random.Random) -> int:
    """Kill a job so many times; returns how often it came to its end all the same."""
    undisturbed = folder / "undisturbed"
    undisturbed.mkdir()
    start = time.perf_counter()
    finished(job.work, undisturbed)
    seconds, steps = time.perf_counter() - start, int.from_bytes(_steps_taken[:], "little")
    kills = ends = 0
    while True:
        attempt = folder / str(ends)
        attempt.mkdir()
        while kills < times:
            by_step = steps and source.random() < 0.5
            step = source.randint(1, steps) if by_step else None
            delay = None if by_step else source.uniform(0, seconds)
            if finished(job.work, attempt, kill_at=step, kill_after=delay):
                break
            kills += 1
            finished(job.check, attempt)
        finished(job.work, attempt)
        finished(require_same, job, attempt, undisturbed)
        ends += 1
        if kills == times:
            return ends


def finished(
    work: Callable[..., object], *arguments: object, kill_at: int | None = None, kill_after: float | None = None
) -> bool:
    """Do work in a child; False if it was killed. An error of its own ends everything."""
    child = os.fork()
    if not child:
        try:
            count_steps(kill_at)
            work(*arguments)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    deadline = time.perf_counter() + (kill_after if kill_after is not None else 600)
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.perf_counter() > deadline:
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)
            break
        time.sleep(0.002)
    if os.WIFSIGNALED(ended[1]):
        if os.WTERMSIG(ended[1]) != signal.SIGKILL or (kill_at is None and kill_after is None):
            sys.exit(f"a child ended by signal {os.WTERMSIG(ended[1])}, or took ten minutes")
        return False
    if os.WEXITSTATUS(ended[1]):
        sys.exit("a child failed, as said above")
    return True


def count_steps(last: int | None) -> None:
    """Count what this process does to files, and kill it at a step."""
    _steps_taken[:] = bytes(8)

    def step() -> None:
        taken = int.from_bytes(_steps_taken[:], "little") + 1
        _steps_taken[:] = taken.to_bytes(8, "little")
        if taken == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def stepping(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            step()
            result = function(*arguments, **options)
            step()
            return result

        return call

    for name in _STEPS:
        setattr(os, name, stepping(getattr(os, name)))


def require_same(job: Job, one: Path, other: Path) -> None:
    """What was killed and taken up again must end as what was not."""
    if not job.is_same(one, other):
        raise AssertionError(f"{one.parent.name} did not end as an undisturbed run does")


if __name__ == "__main__":
    main()
