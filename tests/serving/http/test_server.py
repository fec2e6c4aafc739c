"""The server as a process of its own, and clients that mean it well, or not."""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx
import pytest

from .tiny_run import write_run

SERVE = """
import sys
from pathlib import Path
from tests.serving.http.tiny_run import HeldModel, build_app, load
from tableless.serving.http.app import serve
from tableless.serving.settings import ServerSettings
settings = ServerSettings(time_limit=2, head_time_limit=1, max_body_bytes=20_000)
app = build_app(Path(sys.argv[1]), load, settings)
serve(app, host="127.0.0.1", port=0, settings=settings, on_ready=lambda address: print(address, flush=True))
"""


@contextmanager
def started(run):
    """A server: its process and its address."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SERVE, str(run)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One for all tests that leave it standing."""
    run = write_run(tmp_path_factory.mktemp("runs") / "first")
    write_run(run.parent / "second", seed=5)
    with started(run) as (process, address):
        yield process, address
        assert process.poll() is None


def connect(address):
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def still_answers(address):
    return httpx.post(f"{address}/embed", json={"ids": [1]}, timeout=10).status_code == 200


def everything_from(connection):
    """Until the other side closes."""
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


def test_sigterm_lets_a_request_in_flight_finish_and_the_server_ends_well(tmp_path):
    run = write_run(tmp_path / "run")
    with started(run) as (process, address):
        assert still_answers(address)
        with connect(address) as connection:
            body = json.dumps({"ids": [1, 2]}).encode()
            head = f"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
            connection.sendall(head.encode() + b"\r\n\r\n" + body[:5])
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"{address}/healthz")
            connection.sendall(body[5:])
            assert everything_from(connection).startswith(b"HTTP/1.1 200")
        output, errors = process.communicate(timeout=20)
    assert (process.returncode, output, errors) == (0, "", "")


def test_reloads_under_traffic_drop_nothing(server):
    _, address = server

    async def traffic():
        async with httpx.AsyncClient(base_url=address, timeout=20) as client:
            is_over, answers = asyncio.Event(), []

            async def ask():
                while not is_over.is_set():
                    answer = await client.post("/embed", json={"ids": [1, 2]})
                    answers.append((answer.status_code, answer.text))

            asking = [asyncio.create_task(ask()) for _ in range(4)]
            for run in ("second", "first") * 3:
                assert (await client.post("/reload", json={"run": run})).status_code == 200
                await asyncio.sleep(0.05)
            is_over.set()
            await asyncio.gather(*asking)
            return answers

    answers = asyncio.run(traffic())
    assert {status for status, _ in answers} == {200}
    assert len({text for _, text in answers}) == 2  # two runs, and nothing in between


def test_a_slow_head_ends_in_a_closed_connection(server):
    _, address = server
    with connect(address) as silent, connect(address) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        assert still_answers(address)
        assert everything_from(silent) == b""
        assert everything_from(slow) == b""


def test_a_slow_body_ends_in_408(server):
    _, address = server
    with connect(address) as connection:
        connection.sendall(b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert still_answers(address)
        assert everything_from(connection).startswith(b"HTTP/1.1 408")


def test_an_endless_head_is_refused(server):
    _, address = server
    with connect(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        try:
            for number in range(100):
                connection.sendall(f"X-{number}: {'x' * 4000}\r\n".encode())
                time.sleep(0.001)
        except (ConnectionResetError, BrokenPipeError):
            pass
        received = everything_from(connection)
    assert received == b"" or received.startswith(b"HTTP/1.1 400")
    assert still_answers(address)


def test_an_endless_body_in_chunks_is_refused(server):
    _, address = server
    with connect(address) as connection:
        connection.sendall(b"POST /embed HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(100):
                connection.sendall(b"3e8\r\n" + b" " * 1000 + b"\r\n")
                time.sleep(0.001)
        except (ConnectionResetError, BrokenPipeError):
            pass
        received = everything_from(connection)
    assert received == b"" or received.startswith(b"HTTP/1.1 413")
    assert still_answers(address)


def test_random_bytes_do_no_harm(server):
    _, address = server
    source = random.Random(0)
    heads = [b"", b"POST /embed HTTP/1.1\r\nHost: x\r\n", b"GET /recommend?user=", b"POST /embed HTTP/1.1\r\n\r\n"]
    for number in range(40):
        with connect(address) as connection:
            connection.sendall(heads[number % 4] + source.randbytes(source.randrange(1, 3000)))
    for _ in range(40):
        body = source.randbytes(source.randrange(300))
        for kind in ("application/json", "application/octet-stream"):
            answer = httpx.post(f"{address}/embed", content=body, headers={"Content-Type": kind})
            assert answer.status_code in (200, 422)
    assert still_answers(address)


@pytest.mark.parametrize("path", ["/embed", "/score", "/recommend", "/reload"])
@pytest.mark.parametrize("opening", ["[", '{"ids":', '{"users":['])
def test_deep_json_is_refused(server, path, opening):
    _, address = server
    body = (opening * 20_000)[:19_000]
    answer = httpx.post(f"{address}{path}", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert len(answer.text) < 300


def test_hundreds_of_idle_connections_keep_nobody_out(server):
    process, address = server
    idle = [connect(address) for _ in range(300)]
    try:
        assert still_answers(address)
    finally:
        for connection in idle:
            connection.close()
    assert process.poll() is None
