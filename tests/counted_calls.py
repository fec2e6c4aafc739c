"""Work counted instead of timed: how often Python calls anything. It is the same on a busy machine."""

import sys
from contextlib import contextmanager


class Calls:
    total = 0

    def count(self, frame, event, argument):
        self.total += event in ("call", "c_call")


@contextmanager
def counted_calls():
    """Counts the calls of this thread, of Python's functions and of those in C."""
    calls = Calls()
    before = sys.getprofile()
    sys.setprofile(calls.count)
    try:
        yield calls
    finally:
        sys.setprofile(before)
