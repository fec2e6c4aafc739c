"""A thousand connections to one server, and more than it has descriptors for."""

import resource
import time

import pytest

from tests.serving.http.test_server import connect, started, still_answers
from tests.serving.http.tiny_run import write_run


@pytest.fixture(autouse=True)
def _enough_descriptors():
    """For this process; the server is given its own below."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 2500:
        pytest.skip("the system allows this process fewer than 2,500 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2500, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_thousand_connections_at_once_keep_nobody_out(tmp_path):
    with started(write_run(tmp_path / "run")) as (process, address):
        connections = [connect(address) for _ in range(1000)]
        for connection in connections[::2]:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        assert still_answers(address)
        for connection in connections:
            connection.close()
        assert still_answers(address)
        assert process.poll() is None


def test_more_connections_than_it_has_descriptors_for_do_not_end_a_server(tmp_path):
    with started(write_run(tmp_path / "run")) as (process, address):
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (100, 100))
        connections = [connect(address) for _ in range(200)]
        time.sleep(0.5)
        for connection in connections:
            connection.close()
        deadline = time.monotonic() + 10
        while not _answers(address):
            assert time.monotonic() < deadline
        assert process.poll() is None


def _answers(address: str) -> bool:
    try:
        return still_answers(address)
    except OSError:
        time.sleep(0.2)
        return False
