"""The files around the code agree with each other: versions, Python versions, commands that they call."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

import tableless
from tests.documents import ROOT, links

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WORKFLOWS = ROOT / ".github" / "workflows"
FORMS = [ROOT / ".github" / "ISSUE_TEMPLATE" / name for name in ("bug.yml", "question.yml")]
HOOKS = ROOT / ".pre-commit-config.yaml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def parsed(path: Path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps_of(workflow: str) -> list[dict]:
    return [step for job in parsed(WORKFLOWS / workflow)["jobs"].values() for step in job["steps"]]


def commands() -> dict[str, list[str]]:
    """The command lines of workflows, hooks and `.ci/run`, by file."""
    found = {path.name: [step.get("run", "") for step in steps_of(path.name)] for path in WORKFLOWS.glob("*.yml")}
    found[HOOKS.name] = [hook["entry"] for repository in parsed(HOOKS)["repos"] for hook in repository["hooks"]]
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    found[".ci/run"] = [line for line in script if not line.lstrip().startswith("#")]
    return found


def make_targets(command: str) -> list[str]:
    """What `make` is asked for in a command line, whatever stands before `make` (such as `VARIABLE=1`)."""
    called = re.findall(r"(?:^|[\s;&|])make((?: +[\w-]+)+)", command, re.MULTILINE)
    return [target for words in called for target in words.split()]


def test_the_workflow_tests_the_python_versions_that_the_package_names():
    (job,) = parsed(WORKFLOWS / "ci.yml")["jobs"].values()
    tested = job["strategy"]["matrix"]["python-version"]
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: Python :: 3\.\d+$", line)]
    assert tested == named, "and as strings: YAML reads 3.10 without quotes as 3.1"
    assert PROJECT["requires-python"] == f">={tested[0]}"
    assert tested == [f"3.{minor}" for minor in range(int(tested[0][2:]), int(tested[-1][2:]) + 1)], "none is left out"


def test_contributing_names_the_same_python_versions():
    tested = parsed(WORKFLOWS / "ci.yml")["jobs"]["ci"]["strategy"]["matrix"]["python-version"]
    assert f"Python {tested[0]} to {tested[-1]}" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_workflow_runs_what_every_change_must_pass():
    assert "bash .ci/run" in [step.get("run") for step in steps_of("ci.yml")]


def test_the_release_tries_what_it_keeps():
    steps = steps_of("release.yml")
    tried = next(number for number, step in enumerate(steps) if "package" in make_targets(step.get("run", "")))
    kept = next(number for number, step in enumerate(steps) if step.get("with", {}).get("path") == "dist/")
    assert tried < kept


def test_package_project_and_citation_have_one_version():
    assert parsed(ROOT / "CITATION.cff")["version"] == PROJECT["version"] == tableless.__version__


def test_project_and_citation_name_one_repository():
    urls = PROJECT["urls"]
    assert parsed(ROOT / "CITATION.cff")["repository-code"] == urls["Source"]
    assert [url for url in urls.values() if not url.startswith(urls["Source"])] == []


def test_the_citation_names_the_paper_with_all_its_authors():
    (paper,) = parsed(ROOT / "CITATION.cff")["references"]
    names = [author["family-names"] for author in paper["authors"]]
    assert names == ["Kang", "Cheng", "Yao", "Yi", "Chen", "Hong", "Chi"]
    assert paper["doi"] == "10.1145/3447548.3467304"


def test_every_make_target_that_is_called_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    called = {(name, target) for name, lines in commands().items() for line in lines for target in make_targets(line)}
    assert {("release.yml", "package"), (HOOKS.name, "types"), (".ci/run", "test")} <= called, "they were found"
    assert [(name, target) for name, target in sorted(called) if target not in targets] == []


def test_hooks_run_programs_that_make_setup_installs():
    programs = {entry.split()[0] for entry in commands()[HOOKS.name]} - {"make"}
    packages = {
        ".venv/bin/ruff": "ruff",
        ".venv/bin/end-of-file-fixer": "pre-commit-hooks",
        ".venv/bin/trailing-whitespace-fixer": "pre-commit-hooks",
        ".venv/bin/check-added-large-files": "pre-commit-hooks",
    }
    installed = {re.split(r"[>=<;\[ ]", line)[0] for line in PROJECT["optional-dependencies"]["dev"]}
    assert programs == set(packages)
    assert {"pre-commit", *packages.values()} <= installed


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_an_issue_form_has_what_github_asks_of_it(path):
    form = parsed(path)
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields) > 0
    assert any(field.get("validations", {}).get("required") for field in fields), "an empty form helps nobody"


def test_modules_that_the_changelog_sends_people_to_exist():
    """The tables of what has moved, in two columns: before, and now."""
    rows = re.findall(r"^  \| .* \| (.*) \|$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(tableless[\w.]*)`", row)]
    assert len(named) > 10
    assert [name for name in named if not exists(name)] == []


def exists(name: str) -> bool:
    """Is it a module, or a name in one?"""
    module, _, last = name.rpartition(".")
    try:
        return hasattr(import_module(module), last) or import_module(name) is not None
    except ModuleNotFoundError:
        return False


def test_files_that_contributing_tells_people_to_change_exist():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("## Where to add what\n")[2].partition("\n## ")[0]
    paths = re.findall(r"`([\w/]+(?:/|\.py))`", table)
    assert len(paths) > 8
    roots = (ROOT, ROOT / "src" / "tableless")
    assert [path for path in paths if not any((root / path).exists() for root in roots)] == []


def test_links_of_the_security_policy_lead_to_files():
    targets = links(ROOT / "SECURITY.md")
    folders = re.findall(r"`(tests/\w+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert targets
    assert folders
    assert [target for target in [*targets, *folders] if not (ROOT / target).exists()] == []
