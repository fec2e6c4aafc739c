"""What tells one trained model from another."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..embedding.storage import CONFIG, WEIGHTS
from ..recommender.checkpoint import require_file


def fingerprint(run: Path) -> str:
    """A hash of a run's model: its description and its weights."""
    if not (run / CONFIG).exists():
        raise FileNotFoundError(f"{run} holds no trained model (there is no {CONFIG}); `tableless train` makes one")
    require_file(run / WEIGHTS)
    digest = hashlib.sha256()
    for name in (CONFIG, WEIGHTS):
        with (run / name).open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()
