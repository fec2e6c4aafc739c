"""The benchmark of busy machines: what is compared with what, and that no busy process stays behind."""

import os
import time
from pathlib import Path

import pytest
from benchmarks import busy


def is_running(pid):
    return Path(f"/proc/{pid}").exists()


def test_busy_processes_end_with_the_context(monkeypatch):
    started, popen = [], busy.subprocess.Popen

    def start(*arguments):
        started.append(popen(*arguments))
        return started[-1]

    monkeypatch.setattr(busy.subprocess, "Popen", start)
    with busy._busy_processes(2):
        assert [process.poll() for process in started] == [None, None]
    assert all(process.poll() is not None for process in started)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes as Linux tells of them")
def test_a_busy_process_ends_when_its_parent_is_gone():
    script = (
        "import os, subprocess, sys; command = [sys.executable, '-c', sys.argv[1], str(os.getpid())]\n"
        "print(subprocess.Popen(command, stdout=subprocess.DEVNULL).pid)"
    )
    pid = int(busy.subprocess.check_output([busy.sys.executable, "-c", script, busy._BUSY]))
    for _ in range(200):
        if not is_running(pid):
            break
        time.sleep(0.05)
    assert not is_running(pid)


def test_times_are_taken_quiet_and_busy_with_all_threads_and_with_one(monkeypatch):
    state, told = ["quiet"], []

    class Busy:
        def __init__(self, count):
            assert count == 2

        def __enter__(self):
            state[0] = "busy"

        def __exit__(self, *error):
            state[0] = "quiet"

    def settled(task, settle):
        told.append((state[0], busy.torch.get_num_threads()))
        return {"quiet": 1.0, "busy": 2.0}[state[0]] * {2: 1.0, 1: 1.6}[busy.torch.get_num_threads()]

    monkeypatch.setattr(busy, "_busy_processes", Busy)
    monkeypatch.setattr(busy, "_settled", settled)
    times = busy._timed(lambda: None, 2, 3, 0.0)
    assert told == [("quiet", 2), ("quiet", 1), ("busy", 2), ("busy", 1)] * 3
    assert times == busy._Times([1.0] * 3, [2.0] * 3, [1.6] * 3, [3.2] * 3)
    rows = busy._rows("a task", times, 2)
    assert [row.reached for row in rows] == ["2 ×", "0.625 ×", "0.625 ×", "1 s"]
    assert [row.holds for row in rows] == [True, True, True, None]


def test_with_one_core_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    (row,) = busy.measure()
    assert row.holds is None
