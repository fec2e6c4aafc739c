import os
import subprocess
import sys


def test_kill_9_at_random_moments_leaves_whole_files_and_the_work_ends_as_if_undisturbed():
    """A few of what `python -m tests.faults.kill` does by the dozen; it says what it found wrong, if anything."""
    finished = subprocess.run(
        [sys.executable, "-m", "tests.faults.kill", "--times", "2"],
        capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=300,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    survived = [line.partition(",")[0] for line in finished.stdout.splitlines()]
    assert survived == [f"{job}: 2 kills survived" for job in ("train", "compare", "embed", "export")]
