"""What is written for people, and the parts of it that can be checked."""

import inspect
import re
import shlex
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def python_examples(page: Path) -> list[str]:
    return [body for language, body in _FENCE.findall(_read(page)) if language == "python"]


def example_of(thing: object) -> str:
    """The one example of a docstring."""
    ((language, body),) = _FENCE.findall(textwrap.dedent((inspect.getdoc(thing) or "").partition("Example:\n")[2]))
    assert language == "python"
    return body


def command_lines(page: Path) -> list[list[str]]:
    """The arguments of every `tableless …` on a line of its own, however it is started, without comments."""
    found = []
    for language, body in _FENCE.findall(_read(page)):
        if language in ("", "text"):
            for line in body.replace("\\\n", " ").splitlines():
                command = re.match(r"(?:\w+=\S+ )?(?:torchrun .* -m )?tableless (?P<arguments>.*)", line)
                if command:
                    found.append(shlex.split(command["arguments"], comments=True))
    return found


def links(page: Path) -> list[str]:
    """Where links and pictures lead within the repository; anchors are left to the site's own check."""
    text = _FENCE.sub("", _read(page))
    targets = [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r'src="([^"]+)"', text)]
    return [path for target in targets if "://" not in target and (path := target.partition("#")[0])]


def _read(page: Path) -> str:
    return page.read_text(encoding="utf-8")
