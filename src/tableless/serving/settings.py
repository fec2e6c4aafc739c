"""What can be set about a model that answers and about a server: one place for names, defaults, help and limits.

The commands make their options from these classes; `help` in the metadata of a field is what `--help` shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import get_args

from ..embedding.scheme import Precision
from ..hints import require_choice
from .search import IndexKind


@dataclass(frozen=True)
class AnswerSettings:
    """How a model computes its answers."""

    precision: Precision = field(default="fp32", metadata={"help": "fp32, or int8: quicker, with small errors."})
    hot_ids: int = field(
        default=10_000, metadata={"help": "Vectors kept ready for the ids asked for most, on each side."}
    )
    index: IndexKind = field(
        default="exact", metadata={"help": "exact, or faiss: quicker with very many items, and may miss some."}
    )

    def __post_init__(self) -> None:
        require_choice("index", self.index, get_args(IndexKind))


@dataclass(frozen=True)
class ServerSettings:
    """Limits of the server, and the secret that callers show. A request beyond a limit is refused, never cut."""

    token: str | None = field(default=None, metadata={"help": "Ask callers for this bearer token."})
    """Callers send `Authorization: Bearer <token>`; None: everyone may ask."""
    reload_allowed: bool = True
    follow: bool = field(
        default=False,
        metadata={"option": "--follow", "help": "Take over each new checkpoint of the run (`train --stream`)."},
    )
    allowed_hosts: frozenset[str] | None = None
    """Names that callers may call the server by (`Host`), and whose pages may ask (`Origin`); see `allowed_names`.
    None: any name, and pages that the server sent itself."""
    max_ids: int = field(default=10_000, metadata={"help": "Ids in a request."})
    max_body_bytes: int = field(default=1 << 20, metadata={"help": "Bytes in a request."})
    max_in_flight: int = field(
        default=128, metadata={"help": "Requests being answered; more are turned away with 503."}
    )
    max_connections: int = 4096
    time_limit: float = field(
        default=10.0, metadata={"help": "Seconds for a request, from its first line to its answer."}
    )
    """Reading the body is part of it."""
    head_time_limit: float = 10.0
    """Seconds that a connection may take to send the head of its first or next request."""
    reload_time_limit: float = 600.0

    def __post_init__(self) -> None:
        for own in fields(self):
            value = getattr(self, own.name)
            if own.name.startswith("max_") and value < 1:
                raise ValueError(f"{own.name} is {value}; it must be at least 1")
            if own.name.endswith("time_limit") and not 0 < value < float("inf"):
                raise ValueError(f"{own.name} is {value}; it must be a number of seconds above 0")
        if self.token is not None and not (self.token and self.token.isascii() and self.token.isprintable()):
            raise ValueError("the token must consist of printable ASCII characters, and not be empty")
