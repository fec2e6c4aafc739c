"""Pages of other sites, and names that are not the server's."""

import asyncio
import functools

import pytest
from typer.testing import CliRunner

from tableless import cli
from tableless.serving.http.refusals import allowed_names, is_loopback

from .test_limits import call
from .tiny_run import app_for, write_run

LOOPBACK = allowed_names("127.0.0.1")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "first")


app_once = functools.cache(app_for)
"""Requests leave nothing behind that is asked about here, so a server of each kind is enough."""


def ask(run, *headers, names=LOOPBACK, path="/facts", method="GET", **settings):
    """Status and body of one request to a server that answers under these names."""
    app = app_once(run, allowed_hosts=names, **settings)
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    status, _, body = asyncio.run(call(app, path, method=method, headers=pairs))
    return status, body


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:80", "[::1]", "LocalHost:1", "localhost."])
def test_the_names_of_this_machine_are_answered_with_any_port(run, host):
    assert ask(run, ("host", host))[0] == 200
    assert ask(run, ("host", host), ("origin", f"http://{host}"))[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.nip.io", "10.0.0.7", "[::2]", ""]
)
@pytest.mark.parametrize("path", ["/", "/facts", "/healthz", "/metrics", "/embed"])
def test_a_foreign_name_is_refused_on_loopback_before_anything_else(run, host, path):
    status, body = ask(run, ("host", host), path=path, token="sesame")
    assert status == 403
    assert b"--allowed-host" in body
    assert not host or host.encode() not in body, "nothing of the request is repeated"


def test_one_good_name_among_two_is_not_enough(run):
    assert ask(run, ("host", "localhost"), ("host", "evil.example"))[0] == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "https://localhost.evil.example:8000", "null", "http://[::2]"]
)
@pytest.mark.parametrize("names", [LOOPBACK, None])
def test_a_page_of_another_site_is_refused_wherever_the_server_listens(run, origin, names):
    headers = [("host", "127.0.0.1:8000"), ("origin", origin)]
    status, body = ask(run, *headers, names=names, path="/reload", method="POST")
    assert status == 403
    assert b"--allowed-host" in body


def test_what_is_allowed_is_answered_by_name_and_as_a_page(run):
    names = allowed_names("127.0.0.1", ["API.example.org", "shop.example"])
    assert ask(run, ("host", "api.example.org"), ("origin", "https://api.example.org"), names=names)[0] == 200
    assert ask(run, ("host", "localhost:8000"), ("origin", "https://shop.example:8443"), names=names)[0] == 200
    assert ask(run, ("host", "other.example"), names=names)[0] == 403


def test_elsewhere_any_name_is_answered_until_some_are_given(run):
    assert allowed_names("0.0.0.0") is None
    assert ask(run, ("host", "anything.example"), names=None)[0] == 200
    assert ask(run, ("host", "a.example"), ("origin", "https://a.example"), names=None)[0] == 200
    assert allowed_names("10.0.0.7", ["a.example"]) == {"a.example", "10.0.0.7", "localhost", "127.0.0.1", "::1"}


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.0.0.5", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.7", False), ("example.org", False)],
)  # fmt: skip
def test_which_addresses_are_of_this_machine_alone(host, expected):
    assert is_loopback(host) == expected
    assert (allowed_names(host) is not None) == expected


@pytest.mark.parametrize(
    ("options", "host", "status"),
    [
        ([], "evil.example", 403),
        ([], "localhost:8000", 200),
        (["--allowed-host", "a.example", "--allowed-host", "b.example"], "b.example", 200),
        (["--host", "0.0.0.0"], "evil.example", 200),
        (["--host", "0.0.0.0", "--allowed-host", "a.example"], "evil.example", 403),
    ],
)
def test_the_command_says_which_names_are_answered(run, monkeypatch, options, host, status):
    apps = []
    monkeypatch.setattr("tableless.serving.http.app.serve", lambda app, **_: apps.append(app))
    result = CliRunner().invoke(cli.app, ["serve", str(run), *options])
    assert result.exit_code == 0, result.exception
    answer = asyncio.run(call(apps[0], "/facts", method="GET", headers=[(b"host", host.encode())]))
    assert answer[0] == status


@pytest.mark.parametrize("name", ["", "https://a.example/", "*"])
def test_a_name_that_is_none_is_refused(run, name):
    result = CliRunner().invoke(cli.app, ["serve", str(run), "--allowed-host", name])
    assert "--allowed-host is" in str(result.exception)
