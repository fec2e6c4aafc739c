"""What the site has beyond the Markdown in `docs/`: the reference of the commands, and pages from other folders.

People also read the pages in the repository, where links lead out of `docs/` and back (`../benchmarks/…`, `docs/…`). On
the site `docs/` is the root, and the other folders lie in it. So these links are changed when the site is built.
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
    "SECURITY.md",
    "benchmarks/*.md",
    "benchmarks/*.png",
    "examples/*.ipynb",
    "examples/*.py",
    "experiments/*.md",
    "experiments/*.py",
    "experiments/pictures/*",
    "experiments/results/*.jsonl",
)
COMMANDS_GO_HERE = "<!-- every command, from its own help -->"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that lie beside `docs/` and belong to the site."""
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent
    for pattern in BESIDE_DOCS:
        for path in sorted(root.glob(pattern)):
            files.append(File.generated(config, path.relative_to(root).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change links to those of the site, and put in the reference of the commands."""
    if COMMANDS_GO_HERE in markdown:
        markdown = markdown.replace(COMMANDS_GO_HERE, command_reference())
    if Path(page.file.abs_src_path or "").is_relative_to(config.docs_dir):
        return re.sub(r"\]\(\.\./", "](", markdown)
    return re.sub(r"\]\(((?:\.\./)*)docs/", r"](\1", markdown)


def command_reference() -> str:
    """The `--help` of every command."""
    from typer.testing import CliRunner

    from tableless.cli import app

    sections = []
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__
        shown = CliRunner().invoke(app, [name, "--help"], prog_name="tableless", terminal_width=110)
        sections.append(f"## tableless {name}\n\n```text\n{shown.stdout.strip()}\n```\n")
    return "\n".join(sections)
