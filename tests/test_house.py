"""The house stays in order: short functions, short files, and a name means one thing."""

import ast
from collections import defaultdict
from pathlib import Path

import tableless

from .test_import_direction import imported_modules

ROOT = Path(tableless.__file__).parent
LONGEST_FUNCTION = 60  # lines, without the docstring
LONGEST_FILE = 270
SHORTEST_FILE = 50  # for code that only one module uses

COMMANDS = "the command and the function of this name do the same"
SAME_NAME_ALLOWED = {
    "compare": COMMANDS,
    "compress": COMMANDS,
    "evaluate": COMMANDS,
    "export": COMMANDS,
    "serve": COMMANDS,
    "train": COMMANDS,
}
"""Public names that two modules define, and why that is no confusion."""


def modules() -> dict[str, ast.Module]:
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")
    }


def length_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = (first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def defined_names(module: ast.Module) -> set[str]:
    """Public classes, functions and constants that a module defines itself."""
    names: set[str] = set()
    for node in module.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if not name.startswith("_")}


def test_no_function_is_longer_than_a_screen():
    long = [
        f"{path}: {node.name} has {length_of(node)} lines"
        for path, module in modules().items()
        for node in ast.walk(module)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and length_of(node) > LONGEST_FUNCTION
    ]
    assert long == []


def test_no_file_is_longer_than_one_idea_needs():
    lengths = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert {path: length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_short_code_that_one_module_uses_lives_in_that_module():
    """A newcomer opens a file for an idea, and not for twenty lines of another one. A command is a file by itself."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for path in modules():
        for name in imported_modules(ROOT / path):
            importers[f"{name.removeprefix('tableless.').replace('.', '/')}.py"].add(path)
    lengths = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in modules()}
    by_themselves = {path for path in lengths if path.startswith("cli/") or Path(path).stem.startswith("__")}
    short = {path for path, length in lengths.items() if length < SHORTEST_FILE} - by_themselves
    assert short, "no file is short any more, so raise the limit"
    assert {path: sorted(importers[path]) for path in short if len(importers[path]) < 2} == {}


def test_no_public_name_is_defined_in_two_modules():
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, module in modules().items():
        for name in defined_names(module):
            places[name].append(path)
    twice = {name for name, paths in places.items() if len(paths) > 1} - {"main"}
    assert {name: sorted(places[name]) for name in twice - SAME_NAME_ALLOWED.keys()} == {}
    assert SAME_NAME_ALLOWED.keys() - twice == set(), "no longer needed"
