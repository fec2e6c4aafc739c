"""The README says first what to do first, and lists every scheme. (Its examples are run by test_docs.py.)"""

from tableless import SCHEMES
from tests.documents import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_two_commands_come_first():
    assert README.index("make demo") < README.index("make test") < README.index("Recommenders")


def test_every_scheme_is_in_the_table():
    assert all(f"| `{name}` |" in README for name in SCHEMES)
