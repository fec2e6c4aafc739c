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

    def require_unused(self) -> None:
        """Refuse all of them, where there is no stream."""
        for each in fields(self):
            if getattr(self, each.name) != each.default:
                name = each.metadata.get("option", f"--{each.name.replace('_', '-')}")
                raise ValueError(f"{name} is for streams; give --stream as well, or leave it out")
