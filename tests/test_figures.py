"""Figures of accuracy in README and docs come from committed lines, and stand nowhere but where these are written."""

import re

import pytest
from experiments import deepfm, figures, frontier, replacing, running, sentences

from tableless.files.whole import append_line
from tests.documents import ROOT, name_of

# .8904 or .93; 0.8784; 89.04. Not 3.11.7, 0.01 (a rate), 127.0.0.1 or 1,024.
ACCURACY = re.compile(r"(?<![\d.])\.\d{2,}|(?<![\d.])0\.\d{3,}|(?<![\d.,])\d\d\.\d\d(?![\d.])")
APPENDIX = ROOT / "docs" / "tried.md"  # says of itself that its figures have no lines
PAGES = [page for page in figures.PAGES if page != APPENDIX]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_has_the_figures_that_the_lines_have(page):
    text = page.read_text(encoding="utf-8")
    assert figures.with_figures(text) == text, "python -m experiments.figures writes them"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_has_no_figure_of_accuracy_elsewhere(page):
    outside = figures.BLOCK.sub("", page.read_text(encoding="utf-8"))
    assert [line for line in outside.splitlines() if ACCURACY.search(line)] == []


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        *((text, True) for text in (".8904", "of .93 to", "AUC 0.8784", "89.04 %")),
        *((text, False) for text in ("Python 3.11.7", "a rate of 0.03", "127.0.0.1", "311,872")),
    ],
)
def test_a_figure_of_accuracy_is_told_from_other_numbers(text, is_one):
    assert bool(ACCURACY.search(text)) == is_one


def test_the_readme_and_choosing_have_blocks():
    used = {block["name"] for page in PAGES for block in figures.BLOCK.finditer(page.read_text(encoding="utf-8"))}
    assert used == set(figures.BLOCKS)


def test_a_block_is_written_from_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "RESULTS", tmp_path)
    assert "| ML-1M: AUC, NDCG@10 | not run yet | not run yet |" in figures.what_to_expect()
    assert "not run yet" in figures.by_bytes()
    assert "| not run yet | not run yet | not run yet |" in figures.replaced_tables()
    assert "| ML-1M | `coded` | not run yet |" in figures.default_scheme()
    for run in frontier.runs_of("ML-1M", "full", 128):
        results = {
            "auc": 0.9 + run["train"]["seed"] / 1000,
            "ndcg@10": 0.041,
            "popularity_auc": 0.81304,
            "capped": False,
        }
        append_line(frontier.EXPERIMENT.path, run | {"results": results})
    coded = {"auc": 0.8992, "ndcg@10": 0.0376, "capped": False}
    append_line(frontier.EXPERIMENT.path, frontier.runs_of("ML-1M", "coded", 9)[0] | {"results": coded})
    for size, outcome in {
        4.5: {"error": "too small"},
        20: {"results": {"auc": 0.89, "ndcg@10": 0.0336, "capped": True}},
    }.items():
        append_line(frontier.EXPERIMENT.path, frontier.runs_of("ML-1M", "dhe", size)[0] | outcome)
    append_line(deepfm.EXPERIMENT.path, deepfm.runs()[0] | {"results": {"as trained": {"auc": 0.8042}}})
    run = replacing.runs_of("ML-1M", "coded", "1/3")[0]
    append_line(replacing.EXPERIMENT.path, run | {"results": {"validation": {"auc": 0.9107}}})
    run = replacing.runs_of("ML-1M", "quantized", "1/32")[0]
    append_line(replacing.EXPERIMENT.path, run | {"error": "too small"})
    run = sentences.runs_of("low-rank", "1/32")[1]
    append_line(sentences.EXPERIMENT.path, run | {"results": {"replaced": {"recall": 0.5}, "tuned": {"recall": 0.625}}})
    expected = "| .8130 | .9010 ± .0010, .0410 ± .0000 | .8992, .0376 (1 of 3 seeds) | not run yet |"
    assert f"| ML-1M: AUC, NDCG@10 {expected}" in figures.what_to_expect()
    row = "| `dhe` | not run yet | – | not run yet | .8900†, .0336† (1 of 3 seeds) | not run yet |"
    assert row in figures.by_bytes()
    assert "| `coded`, 1/16 | .8042 | not run yet |" in figures.replaced_tables()
    assert "| `low-rank`, 1/32 | all | .5000 | .6250 | 1 of 3 |" in figures.replaced_tables()
    row = "| ML-1M | `coded` | .9107 | not run yet | not run yet | not run yet | 1 of 3 |"
    assert row in figures.default_scheme()
    row = "| ML-1M | `quantized` | not run yet | not run yet | not run yet | – | 0 of 3 |"
    assert row in figures.default_scheme()


def test_an_unknown_block_is_refused():
    with pytest.raises(ValueError, match="no figures are called 'nonsense'"):
        figures.with_figures("<!-- figures: nonsense -->\n<!-- end -->")
