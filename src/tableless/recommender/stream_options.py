"""What a user says about a stream, beside data, model and training."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


@dataclass(frozen=True)
class StreamOptions:
    """How a stream is read and learned. The defaults say nothing."""

    half_life: int | None = field(
        default=None,
        metadata={"help": "With --stream: after so many actions popularity counts half (unless given, 5000)."},
    )

    follow: bool = field(
        default=False,
        metadata={"option": "--follow", "help": "With --stream: wait for more, for ever."},
    )
    checkpoint_seconds: float = field(
        default=60.0,
        metadata={"help": "With --stream of JSON lines or CSV: seconds between checkpoints."},
    )
    start_from: str | None = field(
        default=None,
        metadata={"option": "--from", "is_path": True, "help": "With --stream: begin with what this run has learned."},
    )

    def __post_init__(self) -> None:
        if not self.checkpoint_seconds > 0:
            raise ValueError(f"checkpoint_seconds is {self.checkpoint_seconds}; it must be above 0")

    def require_unused(self) -> None:
        """Refuse all of them, where there is no stream."""
        for each in fields(self):
            if getattr(self, each.name) != each.default:
                name = each.metadata.get("option", f"--{each.name.replace('_', '-')}")
                raise ValueError(f"{name} is for streams; give --stream as well, or leave it out")
