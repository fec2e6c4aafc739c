"""The report and its pictures say what the lines say."""

from pathlib import Path

import pytest
from experiments import (
    experts,
    figure2,
    figure3,
    online,
    report,
    table3,
    writing,
)
from experiments.__main__ import EXPERIMENTS
from experiments.claims import AS_PUBLISHED
from experiments.finished import NOT_RUN, Finished

from tests.experiments.fakes import lines_with, runs_of_a_model


def test_the_report_has_a_section_for_each_experiment():
    assert {module.EXPERIMENT.name for module in report.SECTIONS.values()} == set(EXPERIMENTS)


TABLE_3 = "Table 3 (RQ2): encodings for DHE"


def test_the_report_shows_what_lines_say_and_that_nothing_else_was_run():
    lines = {title: [] for title in report.SECTIONS}
    published = [run for run in table3.EXPERIMENT.runs if run["train"]["recipe"] == "paper"]
    for number, run in enumerate(published):
        results = {"auc": 0.5 + number / 100, "ndcg@10": 0.05, "evaluated": 6000, "held_out": 6040, "auc_se": 0.0012}
        lines[TABLE_3].append(run | {"results": results, "seconds": 36.0})
    text = report.render(lines)
    assert f"## {TABLE_3}" in text
    for title, module in report.SECTIONS.items():
        if title != TABLE_3:  # it has no section, and is not forgotten
            assert f"## {title}" not in text
            assert f"{title} | 0 of {len(module.EXPERIMENT.runs)} | 0.00 |" in text.replace("](", "|").replace("[", "")
    assert "| identity | 51.00 ± 1.00 | 5.00 ± 0.00 | not run yet | not run yet | 94.99 |" in text
    assert (
        "Held-out actions measured: 6,000 of 6,040; standard error of an AUC over users: at most 0.12 points." in text
    )
    assert "| 15 of 30 | 0.15 | 0.05 |" in text  # three seeds of each, the first a third of the time
    published_table, _, ours = text.partition("## The same comparisons by our recipe")
    above = "| uniform dense hashing is above identity | ML-1M, GMF | +2.67 |"
    assert f"{above} +12.00 ± 0.00 (3 pairs) | +0.00 ± 0.00 (3 pairs) | reproduced |" in published_table
    assert above not in ours
    claims = [claim for module in report.SECTIONS.values() for claim in getattr(module, "CLAIMS", [])]
    left = sum(claim.method == AS_PUBLISHED for claim in claims) - 4
    assert f"reproduced: 4, {NOT_RUN}: {left}." in published_table


def test_the_summary_names_the_claims_that_failed():
    lines = {title: [] for title in report.SECTIONS}
    lines[TABLE_3] = lines_with(table3.EXPERIMENT.runs, [0.9 - number / 100 for number in range(30)])
    text = report.render(lines)
    assert "\n- the opposite: uniform dense hashing is above identity (ML-1M, GMF), -12.00 ± 0.00 (3 pairs); " in text


def test_pictures_are_drawn_from_lines():
    windows = [{"auc": 0.5, "auc_recent": 0.5}] * online.WINDOWS
    lines = [run | {"results": {"auc": 0.6, "by_window": windows}} for run in online.EXPERIMENT.runs]
    assert "](pictures/online-globo.png)" in online.section(lines)
    lines = lines_with(experts.EXPERIMENT.runs, [0.6] * len(experts.EXPERIMENT.runs), item_products=1000)
    assert "](pictures/experts.png)" in experts.section(lines)
    lines = lines_with(figure3.EXPERIMENT.runs, [0.6] * len(figure3.EXPERIMENT.runs))
    assert "](pictures/figure3.png)" in figure3.section(lines)
    runs = figure2.runs_of("ML-1M, GMF", "dhe", "1/4", "fast")
    assert "](pictures/figure2-movielens-1m-gmf-fast.png)" in figure2.section(lines_with(runs, [0.6] * 3))
    drawn = ["experts.png", "figure2-movielens-1m-gmf-fast.png", "figure3.png", "online-globo.png"]
    drawn.append("online-movietweetings-142k.png")
    assert sorted(path.name for path in writing.PICTURES.iterdir()) == drawn


def test_a_marker_is_hollow_where_a_run_stopped_at_the_limit():
    runs, others = runs_of_a_model(1), runs_of_a_model(1, "bloom")
    finished = Finished(lines_with(runs, [0.6], capped=True) + lines_with(others, [0.7], capped=False))
    axes = writing.new_picture().subplots()
    writing.markers(axes, finished, [(0, runs), (1, others)], "auc", color="C1")
    _, hollow, solid = axes.get_lines()
    assert (hollow.get_markerfacecolor(), solid.get_markerfacecolor()) == ("white", "C1")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_page_of_the_experiments_knows_each_and_its_number_of_runs(name):
    page = (Path(report.__file__).parent / "README.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if f"[{name}.py]({name}.py)" in line]
    assert row.endswith(f"| {len(EXPERIMENTS[name].runs)} |")
