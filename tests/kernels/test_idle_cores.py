"""Torch has as many threads as other processes leave cores, or as many as the environment says."""

import threading

import pytest
import torch

from tableless.kernels import idle_cores, resources
from tableless.kernels.idle_cores import Load, on_idle_cores, usual_threads


class Machine:
    """A machine with four cores, on which time passes as a test says."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(idle_cores, "_own_cores", lambda: {0, 2, 3, 5})
        self.now = self.busy = self.own = 100.0
        self.looks = 0
        self.load = Load(self._busy, lambda: self.own, lambda: self.now)

    def _busy(self):
        self.looks += 1
        return self.busy

    def passes(self, seconds, *, own, others):
        self.now, self.own = self.now + seconds, self.own + seconds * own
        self.busy += seconds * (own + others)
        return self.load.idle_cores()


@pytest.fixture(autouse=True)
def _nothing_asked_for(monkeypatch):
    """Whoever runs the tests may have asked for a number of threads."""
    monkeypatch.delenv("TABLELESS_THREADS", raising=False)


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


def test_cores_that_others_use_are_not_idle_and_our_own_work_does_not_count(machine):
    assert machine.load.idle_cores() is None  # nothing to compare with yet
    assert machine.passes(1, own=4, others=0) == 4
    assert machine.passes(1, own=3, others=0.9) == 3
    assert machine.passes(1, own=1.5, others=2) == 2
    assert machine.passes(1, own=0.5, others=3.5) == 1
    assert machine.passes(1, own=0.1, others=3.9) == 1  # there is always one
    assert machine.passes(1, own=1, others=0.3) == 4  # little enough


def test_the_counts_are_read_twice_a_second_at_most(machine):
    machine.load.idle_cores()
    assert machine.passes(0.2, own=0, others=4) is None
    assert machine.passes(0.2, own=0, others=4) is None
    assert machine.looks == 1
    assert machine.passes(0.2, own=0, others=4) == 1
    assert machine.passes(0.2, own=0, others=0) == 1
    assert machine.looks == 2


def test_where_the_system_does_not_tell_nothing_is_known():
    assert Load(lambda: None, clock=iter(range(9)).__next__).idle_cores() is None


def test_this_system_tells_how_long_its_cores_have_worked():
    before = idle_cores._busy_seconds()
    if before is None:
        pytest.skip("this system has no /proc/stat")
    assert before > 0
    assert idle_cores._busy_seconds() >= before


class Idle:
    def __init__(self, number):
        self.number = number

    def idle_cores(self):
        return self.number


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("idle", "expected"), [(None, 4), (1, 1), (3, 3), (9, 4)])
def test_torch_has_the_idle_cores_and_afterwards_what_it_had(four_threads, monkeypatch, idle, expected):
    monkeypatch.setattr(idle_cores, "_load", Idle(idle))

    @on_idle_cores()
    def step():
        assert torch.get_num_threads() == expected
        assert usual_threads() == 4  # our own threads do not wait for each other
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        step()
    assert torch.get_num_threads() == usual_threads() == 4


def test_an_inner_step_may_have_more_threads_again(four_threads, monkeypatch):
    monkeypatch.setattr(idle_cores, "_load", load := Idle(1))
    with on_idle_cores():
        load.number = 3
        with on_idle_cores():
            assert torch.get_num_threads() == 3
            assert usual_threads() == 4
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 4


def test_the_environment_may_ask_for_a_number(four_threads, monkeypatch):
    monkeypatch.setattr(idle_cores, "_load", Idle(1))
    monkeypatch.setenv("TABLELESS_THREADS", "2")
    with on_idle_cores():
        assert torch.get_num_threads() == usual_threads() == 2
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_what_is_no_number_of_threads_is_refused(monkeypatch, text):
    monkeypatch.setenv("TABLELESS_THREADS", text)
    with pytest.raises(ValueError, match=f"TABLELESS_THREADS is '{text}'"), on_idle_cores():
        pass


def test_rows_are_shared_out_though_others_are_busy_and_few_rows_are_not(four_threads, monkeypatch):
    monkeypatch.setattr(idle_cores, "_load", Idle(1))
    seen = []

    def work(start, stop):
        seen.append((stop - start, torch.get_num_threads(), threading.current_thread().name))

    with on_idle_cores():
        resources.in_parallel(work, 40, fewest=10)
    assert [count for count, _, _ in seen] == [10] * 4
    assert all(name.startswith("tableless") and threads == 1 for _, threads, name in seen)
    seen.clear()
    resources.in_parallel(work, 19, fewest=10)
    assert seen == [(19, 1, threading.current_thread().name)]
