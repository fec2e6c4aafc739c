import torch

from tableless.embedding.memory import keeping_freed_memory


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
