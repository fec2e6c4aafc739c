"""Data flows one way: kernels → embedding → files → data → recommender → serving → api, cli, each using its left."""

import ast
import subprocess
import sys
from pathlib import Path

import tableless

ROOT = Path(tableless.__file__).parent
ORDER = ["kernels", "embedding", "files", "data", "recommender", "serving", "api", "cli"]


def imported_modules(path: Path) -> set[str]:
    package = ["tableless", *path.relative_to(ROOT).with_suffix("").parts][:-1]
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            modules.update({module, *(f"{module}.{alias.name}" for alias in node.names)})
    return modules


def part_of(module: str) -> str | None:
    names = module.split(".")
    return names[1] if names[0] == "tableless" and len(names) > 1 and names[1] in ORDER else None


def test_no_module_imports_what_lies_to_its_right():
    wrong = []
    for path in ROOT.rglob("*.py"):
        own = part_of("tableless." + ".".join(path.relative_to(ROOT).with_suffix("").parts))
        if own is None:
            continue
        for module in imported_modules(path):
            other = part_of(module)
            if other and ORDER.index(other) > ORDER.index(own):
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert wrong == []


def test_the_functions_and_the_commands_do_not_know_each_other():
    """The functions are for programs, where typer and rich need not be; the commands have processes of their own."""
    modules = {path: imported_modules(path) for path in ROOT.rglob("*.py")}
    assert [name for name in modules[ROOT / "api.py"] if part_of(name) == "cli"] == []
    commands = [path for path in modules if path.parent.name == "cli"]
    assert len(commands) > 5
    assert [path for path in commands if any(part_of(name) == "api" for name in modules[path])] == []


def test_the_core_needs_none_of_the_extras():
    extras = "polars pyarrow typer rich matplotlib onnx onnxruntime fastapi faiss ray numba"
    later = "tableless.api tableless.data tableless.recommender tableless.serving tableless.cli"
    code = (
        f"import sys, tableless; print([name for name in {[*extras.split(), *later.split()]} if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_the_command_line_starts_without_what_only_some_commands_need():
    """Else `tableless --help` would take a second longer."""
    later = ["numba", "polars", "pyarrow", "fastapi"]
    code = f"import sys, tableless.cli; print([name for name in {later} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
