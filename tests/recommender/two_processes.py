"""Two processes that train one model, as `torchrun` starts them; only quicker, since neither has to import anything.

They are forked from a process that has imported everything and started nothing. A test in test_streaming.py has the
processes of `torchrun` itself.
"""

import os
import subprocess
import sys

_FORK = """
import os, socket, sys, traceback
import tableless.recommender.runs, tests.before_forks
from tableless import cli
from tableless.embedding import distillation

distillation._MOST_VISITS = distillation._FEWEST_VISITS = 20  # as in `few_visits`

def by_two(job):
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for rank in range(2):
        if not os.fork():
            os.environ.update(group, RANK=str(rank), LOCAL_RANK=str(rank))
            try:
                job()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            sys.stdout.flush()
            os._exit(0)
    for _ in range(2):
        if os.wait()[1]:
            os.killpg(0, 9)  # the other one would wait for it

def command(*arguments):
    sys.argv = ["tableless", *arguments]
    try:
        cli.main()
    except SystemExit as end:
        assert not end.code, end.code
"""


def run_by_two(code, *arguments):
    """What a program prints that has `by_two(job)`, which calls `job()` in two processes, and `command(*arguments)`."""
    done = subprocess.run(
        [sys.executable, "-c", _FORK + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=300,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
