"""A thousand connections to one server, and more than it has descriptors for."""

import resource
import time

import httpx
import pytest

from tests.serving.http.test_server import connect, started, still_answers
from tests.serving.http.tiny_run import write_run


@pytest.fixture
def server(tmp_path):
    """Its process and its address; this process may have as many connections as it needs."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 2500:
        pytest.skip("the system allows this process fewer than 2,500 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2500, before[1]))
    with started(write_run(tmp_path / "run")) as (process, address):
        yield process, address
        assert process.poll() is None
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_thousand_connections_at_once_keep_nobody_out_and_too_many_do_not_end_the_server(server):
    process, address = server
    connections = [connect(address) for _ in range(1000)]
    for connection in connections[::2]:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    assert still_answers(address)
    close(connections)
    assert still_answers(address)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (100, 100))
    connections = [connect(address) for _ in range(200)]
    time.sleep(0.5)
    close(connections)
    assert any(answers(address) for _ in range(50)), "it answers again, sooner or later"


def close(connections):
    for connection in connections:
        connection.close()


def answers(address):
    try:
        if still_answers(address):
            return True
    except httpx.HTTPError:
        pass
    time.sleep(0.2)
    return False
