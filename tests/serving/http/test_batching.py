import asyncio
import threading

import numpy as np

from tableless.serving.http.served_model import LARGEST_BATCH, Batcher


class Doubling:
    """Vectors [n, 1] that are twice the ids; holds its first batch until it is told to go on."""

    def __init__(self):
        self.go, self.is_busy, self.batches = threading.Event(), threading.Event(), []

    def __call__(self, ids):
        self.batches.append(len(ids))
        self.is_busy.set()
        assert self.go.wait(timeout=20)
        if (ids == 13).any():
            raise ValueError("unlucky")
        return (2 * ids[:, None]).astype(np.float32)


def run(story):
    """Tell the story of a batcher whose thread is busy with the ids [0]; returns the batches that it computed."""

    async def told():
        compute = Doubling()
        batcher = Batcher(compute, name="item", on_batch=lambda count: None)
        first = batcher.submit(np.array([0]))
        await asyncio.to_thread(compute.is_busy.wait, 20)
        await story(batcher, compute)
        assert (await first).tolist() == [[0]]
        batcher.close()
        return compute.batches

    return asyncio.run(asyncio.wait_for(told(), timeout=30))


def test_what_arrives_while_a_batch_is_computed_is_the_next_batch():
    async def story(batcher, compute):
        answers = [batcher.submit(np.arange(size) + size) for size in (3, 1, 0, 2)]
        compute.go.set()
        for size, vectors in zip((3, 1, 0, 2), await asyncio.gather(*answers), strict=True):
            assert vectors[:, 0].tolist() == [2 * (size + number) for number in range(size)]

    assert run(story) == [1, 6]


def test_a_request_at_fault_fails_alone():
    async def story(batcher, compute):
        answers = [batcher.submit(np.array(ids)) for ids in ([1], [13, 2], [3])]
        compute.go.set()
        good, bad, also_good = await asyncio.gather(*answers, return_exceptions=True)
        assert (good.tolist(), also_good.tolist()) == ([[2]], [[6]])
        assert isinstance(bad, ValueError)

    assert run(story) == [1, 4, 1, 2, 1]


def test_what_was_given_up_is_not_computed():
    async def story(batcher, compute):
        given_up, wanted = batcher.submit(np.arange(100)), batcher.submit(np.array([4]))
        given_up.cancel()
        compute.go.set()
        assert (await wanted).tolist() == [[8]]

    assert run(story) == [1, 1]


def test_a_batch_has_an_end():
    async def story(batcher, compute):
        answers = [batcher.submit(np.zeros(LARGEST_BATCH // 2, np.int64)) for _ in range(4)]
        compute.go.set()
        await asyncio.gather(*answers)

    assert run(story) == [1, LARGEST_BATCH, LARGEST_BATCH]


def test_a_closed_batcher_answers_what_it_was_asked_and_its_thread_ends():
    before, own = set(threading.enumerate()), []

    async def story(batcher, compute):
        own.extend(set(threading.enumerate()) - before)
        last = batcher.submit(np.array([5]))
        batcher.close()
        compute.go.set()
        assert (await last).tolist() == [[10]]

    run(story)
    (thread,) = (thread for thread in own if thread.name == "batches of items")
    thread.join(timeout=20)
    assert not thread.is_alive()
