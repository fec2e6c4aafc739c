"""Under which circumstances a run was made: versions, commit, machine, date. They stand beside its results."""

from __future__ import annotations

import datetime
import functools
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
# What matters here of a processor: which vector instructions the kernels may use.
_FLAGS = ("avx2", "avx512f", "avx512_vnni")
_CODE = ("src", "experiments/*.py", "examples/*.py")  # what a result depends on; lines and documents it does not


def circumstances() -> dict[str, Any]:
    """What a line says beside its settings and results."""
    from tableless.recommender.runs import versions

    return {
        "versions": versions(),
        "commit": commit(),
        "machine": machine(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    }


def commit(root: Path = ROOT) -> str | None:
    """The commit of the code, with `-dirty` if the code was changed since; None where there is no git."""
    name = _git(root, "rev-parse", "--short", "HEAD")
    if name is None:
        return None
    return f"{name}-dirty" if _git(root, "status", "--porcelain", "--", *_CODE) else name


@functools.cache
def machine() -> dict[str, Any]:
    """The processor, how many cores this process may use, and those vector instructions that it has."""
    facts = _processor()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    known = facts.get("flags", "").split()
    return {
        "cpu": facts.get("model name") or platform.processor() or platform.machine(),
        "cores": cores,
        "flags": [flag for flag in _FLAGS if flag in known],
    }


def _processor() -> dict[str, str]:
    """What Linux says of the first core; nothing elsewhere."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    first = path.read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    except OSError:  # git is not installed
        return None
    return done.stdout.strip() if done.returncode == 0 else None
