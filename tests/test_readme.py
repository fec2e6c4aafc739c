"""The examples of the README run as they are written."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_readme_runs(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    exec(EXAMPLES[number], namespace)
    assert len(namespace) > 2, "it imported and defined something"


def test_the_two_commands_come_first():
    assert README.index("make demo") < README.index("make test") < README.index("Recommenders")


def test_every_scheme_is_in_the_table():
    from tableless import SCHEMES

    assert all(f"| `{name}` |" in README for name in SCHEMES)
