import threading

import numpy as np
import pytest
from benchmarks import serving

IDS = np.arange(-700, 700) * 10**15


@pytest.mark.parametrize("callers", [1, 16])
def test_as_many_threads_call_at_once_as_there_are_callers(callers):
    meeting = threading.Barrier(callers)  # nobody passes until all are there
    batches = []

    def fast(ids):
        meeting.wait(timeout=60)
        batches.append(tuple(ids.tolist()))

    assert serving.calls_per_second(fast, IDS, 0, callers=callers) > 0
    assert len(batches) == callers
    assert {len(batch) for batch in batches} == {serving.IDS_PER_REQUEST}


def test_requests_are_compared_with_as_many_callers_in_the_same_repetition(monkeypatch):
    done = []

    def call(fast, ids, seconds, *, callers):
        done.append(("calls", callers, seconds))
        return 100.0 * callers

    def ask(server, script, connections, seconds):
        done.append(("requests", connections, seconds))
        return {"requests": 90 * connections, "seconds": 1, "p50": 1, "p99": 2, "failed": 0}

    monkeypatch.setattr(serving, "calls_per_second", call)
    monkeypatch.setattr(serving, "_wrk", ask)
    rows = serving._compare("tiny", None, None, None, IDS, 5, 3, 16)
    pairs = list(zip(done[1::2], done[2::2], strict=True))  # the first request is there to warm up
    assert len(pairs) == 6
    assert all(one[0] == "calls" and other == ("requests", *one[1:]) for one, other in pairs)
    ratios = {row.question: row.reached for row in rows if "against" in row.question}
    assert ratios == {
        "tiny: HTTP against calls, both 16 at a time": "0.9 ×",
        "tiny: HTTP against calls, both one at a time": "0.9 ×",
    }
