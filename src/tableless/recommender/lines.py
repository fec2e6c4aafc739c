"""Finished runs as JSON lines, which survive a crash: what is cut short is dropped, and its run done again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def read_lines(path: Path) -> list[Line]:
    """Every whole line of the file; nothing, if there is no file."""
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(text))
        except (json.JSONDecodeError, RecursionError):
            continue
    return [line for line in lines if isinstance(line, dict)]


def append_line(path: Path, line: Line) -> None:
    """Add a line, and begin a new one first if the last was cut short."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_bytes() if path.exists() else b""
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if before and not before.endswith(b"\n") else "") + json.dumps(line) + "\n")
