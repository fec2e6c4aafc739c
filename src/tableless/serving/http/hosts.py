"""Which names the server answers under: pages of other sites must not reach it through a visitor's browser.

A page can give its own name the address 127.0.0.1 (DNS rebinding) and then read what a server answers there. The `Host`
header shows this: it still has the page's name. A page that asks across sites shows its own name in `Origin`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

Headers = Sequence[tuple[bytes, bytes]]

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Is an address to listen on reached from this machine alone?"""
    try:
        return ipaddress.ip_address(host_name(host)).is_loopback
    except ValueError:
        return host_name(host) == "localhost"


def allowed_names(host: str, allowed: Iterable[str] = ()) -> frozenset[str] | None:
    """The names to answer under when listening on `host`; None: any.

    On loopback these are its own names. Elsewhere they are not known, so that any name is answered until some are
    given (`allowed`).
    """
    given = frozenset(map(_require_name, allowed))
    return _LOOPBACK | {host_name(host)} | given if given or is_loopback(host) else None


def why_foreign(headers: Headers, names: frozenset[str] | None) -> str | None:
    """A sentence for a request that comes by a foreign name or from a foreign page; None: all is well."""
    hosts = {host_name(value.decode("latin-1")) for name, value in headers if name == b"host"}
    origins = {host_name(value.decode("latin-1").rpartition("://")[2]) for name, value in headers if name == b"origin"}
    if names is not None and not hosts <= names:
        return "The server does not answer under the name in `Host`; start it with `--allowed-host NAME` if it should."
    if not origins <= hosts | (names or frozenset()):
        return "Pages of other sites may not ask; start the server with `--allowed-host NAME`, their host, if they may."
    return None


def host_name(text: str) -> str:
    """`Localhost:8000` -> localhost, `[::1]:80` -> ::1."""
    text = text.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text if text.count(":") > 1 else text.partition(":")[0].rstrip(".")


def _require_name(text: str) -> str:
    if not host_name(text) or "/" in text or "*" in text:
        raise ValueError(f"--allowed-host is {text!r}; it must be a host's name or address, such as api.example.org")
    return host_name(text)
