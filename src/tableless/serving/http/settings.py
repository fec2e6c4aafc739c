"""What a caller may ask for, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Settings:
    """Limits of the server, and the secret that callers show. Whatever goes beyond a limit is refused, never cut."""

    token: str | None = None
    """Callers send `Authorization: Bearer <token>`; None: everyone may ask."""
    reload_allowed: bool = True
    allowed_hosts: frozenset[str] | None = None
    """Names that callers may call the server by (`Host`), and whose pages may ask (`Origin`); see `allowed_names`.
    None: any name, and pages that the server sent itself."""
    max_ids: int = 10_000
    """In one request."""
    max_body_bytes: int = 1 << 20
    max_in_flight: int = 128
    """Requests that are being answered; more are turned away at once."""
    max_connections: int = 4096
    time_limit: float = 10.0
    """Seconds, from the head of a request to the end of the answer; reading the body is part of it."""
    head_time_limit: float = 10.0
    """Seconds that a connection may take to send the head of a(nother) request, idle or not."""
    reload_time_limit: float = 600.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.startswith("max_") and value < 1:
                raise ValueError(f"{field.name} is {value}; it must be at least 1")
            if field.name.endswith("time_limit") and not 0 < value < float("inf"):
                raise ValueError(f"{field.name} is {value}; it must be a number of seconds above 0")
        if self.token is not None and not (self.token and self.token.isascii() and self.token.isprintable()):
            raise ValueError("the token must consist of printable ASCII characters, and not be empty")
