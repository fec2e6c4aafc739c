"""RESULTS.md: a part for each machine that the benchmarks were run on, and in it a section for each benchmark.

A part begins with `## ` and the processor, a section with `### ` and the file of the benchmark.
"""

from __future__ import annotations

import re

HEAD = (
    "# Results of `make bench`\n\nA part for each kind of machine. Medians, and the range over repetitions; ratios are "
    "taken within a repetition; one thread, unless a row says otherwise. Written by `python -m benchmarks`; change "
    "nothing here by hand."
)


def processor_of(machine: str) -> str:
    """The kind of a machine, from what `describe_machine` says: its processor, without threads and versions."""
    return machine.partition(" thread(s)")[0].rpartition(", ")[0]


def picture_of(processor: str) -> str:
    """The name of the picture that a machine's part shows."""
    return f"growth-{re.sub(r'[^a-z0-9]+', '-', processor.lower()).strip('-')}.png"


def section(name: str, body: str) -> str:
    """The section of a benchmark."""
    return f"### {name}.py\n\n{body}"


def with_part(text: str, processor: str, body: str) -> str:
    """The results with another part of this kind of machine; those of others stay. A new one comes last."""
    parts = _split(text, "## ")[1]
    return "\n\n".join([HEAD, *(parts | {processor: f"## {processor}\n\n{body.strip()}"}).values()]) + "\n"


def with_section(text: str, processor: str, name: str, body: str) -> str:
    """The results with another section of this kind of machine. All else stays. A new section comes last in its part.

    Raises:
        ValueError: This kind of machine has no part yet.
    """
    parts = _split(text, "## ")[1]
    if processor not in parts:
        known = ", ".join(parts) or "no machine"
        raise ValueError(f"there are results of {known}, and none of {processor}; run all benchmarks first")
    head, sections = _split(parts[processor], "### ")
    sections |= {f"{name}.py": section(name, body)}
    return with_part(text, processor, "\n\n".join([head.partition("\n")[2].strip(), *sections.values()]))


def _split(text: str, mark: str) -> tuple[str, dict[str, str]]:
    """What comes before the first heading of this level, and each heading with its text, the heading included."""
    head, *others = re.split(rf"^(?={mark})", text, flags=re.MULTILINE)
    return head.strip(), {other.partition("\n")[0].removeprefix(mark).strip(): other.strip() for other in others}
