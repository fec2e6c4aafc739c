"""The README begins with the two commands; a page lists every scheme. (Their examples are run by test_docs.py.)"""

from tableless import SCHEMES
from tests.documents import ROOT, python_examples

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_two_commands_come_first():
    assert README.index("make demo") < README.index("make test") < README.index("Recommenders")


def test_the_first_example_replaces_tables_of_a_trained_model():
    """`DeepHashEmbedding` in a plain training loop hardly learns, so it must not be what people copy first."""
    first = python_examples(ROOT / "README.md")[0]
    assert "replace_embeddings(model, " in first
    assert "DeepHashEmbedding" not in first


def test_the_readme_is_short_enough_to_be_read():
    assert len(README.splitlines()) < 110


def test_every_scheme_is_in_the_table_of_the_page_on_choosing():
    page = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8").partition("## All schemes")[2]
    table = page.partition("\n## ")[0]
    assert [name for name in SCHEMES if f"\n| `{name}` |" not in table] == []
