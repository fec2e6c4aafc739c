"""What mkdocs does beyond Markdown: the reference of the commands, and pages that lie beside `docs/`.

Pages are written to be read in the repository as well, where links lead out of `docs/` and back (`../benchmarks/…`,
`docs/…`). The site has no such folder: everything is where it is in the repository, but `docs/` is its root.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

BESIDE_DOCS = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/*.md",
    "benchmarks/*.png",
    "examples/*.py",
    "experiments/*.md",
    "experiments/*.py",
    "experiments/pictures/*",
    "experiments/results/*.jsonl",
)
COMMANDS_GO_HERE = "<!-- every command, from its own help -->"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take in what lies beside `docs/` and belongs to the site."""
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent
    for pattern in BESIDE_DOCS:
        for path in sorted(root.glob(pattern)):
            files.append(File.generated(config, path.relative_to(root).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as the site has them, and the commands where they go."""
    if COMMANDS_GO_HERE in markdown:
        markdown = markdown.replace(COMMANDS_GO_HERE, command_reference())
    if Path(page.file.abs_src_path or "").is_relative_to(config.docs_dir):
        return re.sub(r"\]\(\.\./", "](", markdown)
    return re.sub(r"\]\(((?:\.\./)*)docs/", r"](\1", markdown)


def command_reference() -> str:
    """The help of every command, as it prints it."""
    from typer.testing import CliRunner

    from tableless.cli import app

    sections = []
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__
        shown = CliRunner().invoke(app, [name, "--help"], prog_name="tableless", terminal_width=110)
        sections.append(f"## tableless {name}\n\n```text\n{shown.stdout.strip()}\n```\n")
    return "\n".join(sections)
