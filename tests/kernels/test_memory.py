import ctypes

import pytest
import torch

from tableless.kernels import resources as memory
from tableless.kernels.resources import keeping_freed_memory


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])


def test_freed_blocks_stay_until_the_end_and_are_then_given_back():
    size = 50_000_000  # bytes; 12,207 pages of 4 kB
    with keeping_freed_memory():
        block = torch.ones(size, dtype=torch.uint8)
        full = resident()
        del block
        kept = resident()
    given_back = resident()
    assert kept > full - 1_000
    assert given_back < full - 10_000


class RecordedGlibc:
    """Keeps what it was told, by the option's number."""

    def __init__(self):
        self.options, self.calls = {}, 0

    def mallopt(self, option, value):
        self.options[option] = value
        self.calls += 1

    def malloc_trim(self, _):
        pass


@pytest.fixture
def glibc(monkeypatch):
    for name in ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_"):
        monkeypatch.delenv(name, raising=False)
    library = RecordedGlibc()
    monkeypatch.setattr(memory, "_glibc", lambda: library)
    return library


TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4


def test_afterwards_the_options_are_what_the_environment_asks_for_else_the_defaults(glibc, monkeypatch):
    with keeping_freed_memory():
        assert glibc.options[MMAP_MAX] == 0
    assert glibc.options == {TRIM_THRESHOLD: 131_072, TOP_PAD: 131_072, MMAP_MAX: 65_536}, "those of mallopt(3)"
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "9999999999")
    monkeypatch.setenv("MALLOC_TOP_PAD_", "not a number")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=3:glibc.malloc.mmap_max=0x10")
    with keeping_freed_memory():
        pass
    assert glibc.options == {TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 131_072, MMAP_MAX: 16}


def test_one_within_another_does_not_end_it(glibc):
    with keeping_freed_memory():
        told = glibc.calls
        with keeping_freed_memory():
            pass
        assert (glibc.options[MMAP_MAX], glibc.calls) == (0, told)
    assert glibc.options[MMAP_MAX] == 65_536


def test_where_there_are_no_symbols_of_the_process_nothing_happens(monkeypatch):
    def refuse(name):
        raise TypeError("argument of type 'NoneType' is not iterable")  # as Python on Windows says

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    memory.give_memory_back()
    with keeping_freed_memory():
        pass
